"""A generator that learns to draw points on a ring, and a discriminator that tells them from real ones."""
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

STEPS, BATCH_SIZE, NZ = 50, 64, 8
REAL_LABEL, FAKE_LABEL = 1.0, 0.0


class Generator(nn.Module):
    def __init__(self, nz=NZ, ngf=32):
        super().__init__()

        def block(in_feat, out_feat, normalize=True):
            layers = [nn.Linear(in_feat, out_feat)]
            if normalize:
                layers.append(nn.BatchNorm1d(out_feat, 0.8))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers

        self.main = nn.Sequential(*block(nz, ngf, normalize=False), *block(ngf, 2 * ngf), nn.Linear(2 * ngf, 2), nn.Tanh())

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self, ndf=32):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(2, 2 * ndf), nn.LeakyReLU(0.2, inplace=True), nn.Linear(2 * ndf, ndf),
                                  nn.LeakyReLU(0.2, inplace=True), nn.Linear(ndf, 1), nn.Sigmoid())

    def forward(self, input):
        return self.main(input).view(-1, 1).squeeze(1)


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Linear") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.1)
        nn.init.constant_(m.bias.data, 0)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


def ring(rng):
    angle = rng.uniform(0, 2 * np.pi, BATCH_SIZE)
    points = 0.7 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(0, 0.02, (BATCH_SIZE, 2))
    return torch.FloatTensor(points)


def build():
    netG, netD = Generator(), Discriminator()
    netG.apply(weights_init)
    netD.apply(weights_init)
    return netG, netD


def train(netG, netD):
    rng = np.random.default_rng(0)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    netG.to(device)
    netD.to(device)
    criterion = nn.BCELoss()
    fixed_noise = torch.from_numpy(rng.standard_normal((100, NZ), dtype=np.float32)).to(device)
    optimizerD = optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
    losses = []
    for _ in range(STEPS):
        # (1) update D: maximize log(D(x)) + log(1 - D(G(z)))
        netD.zero_grad()
        real = ring(rng).to(device)
        label = torch.full((real.size(0),), REAL_LABEL, dtype=real.dtype, device=device)
        errD_real = criterion(netD(real), label)
        errD_real.backward()
        D_x = netD(real).mean().item()

        noise = torch.from_numpy(rng.standard_normal((real.size(0), NZ), dtype=np.float32)).to(device)
        fake = netG(noise)
        label.fill_(FAKE_LABEL)
        errD_fake = criterion(netD(fake.detach()), label)
        errD_fake.backward()
        errD = errD_real + errD_fake
        optimizerD.step()

        # (2) update G: maximize log(D(G(z)))
        netG.zero_grad()
        label.fill_(REAL_LABEL)
        errG = criterion(netD(fake), label)
        errG.backward()
        optimizerG.step()
        losses += [errD.item(), errG.item(), D_x]
    netG.eval()
    with torch.no_grad():
        radius = netG(fixed_noise).norm(dim=1)
    print(f"distance from the middle: {radius.mean():.3f} +- {radius.std():.3f}")
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    losses = train(*build())
    for step in range(STEPS):
        print("[%d/%d] Loss_D: %.4f Loss_G: %.4f D(x): %.4f" % (step, STEPS, *losses[3 * step:3 * step + 3]))
