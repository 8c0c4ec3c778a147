"""A variational autoencoder of small pictures of a blob."""
import numpy as np
import torch
from torch import nn, optim
from torch.nn import functional as F

STEPS, BATCH_SIZE, SIZE, LATENT = 50, 32, 12, 4


class VAE(nn.Module):
    def __init__(self, hidden=64):
        super(VAE, self).__init__()
        self.fc1 = nn.Linear(SIZE * SIZE, hidden)
        self.fc21 = nn.Linear(hidden, LATENT)
        self.fc22 = nn.Linear(hidden, LATENT)
        self.fc3 = nn.Linear(LATENT, hidden)
        self.fc4 = nn.Linear(hidden, SIZE * SIZE)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar, eps):
        std = torch.exp(0.5 * logvar)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x, eps):
        mu, logvar = self.encode(x.view(-1, SIZE * SIZE))
        z = self.reparameterize(mu, logvar, eps)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, SIZE * SIZE), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def blobs(rng):
    center, width = rng.uniform(2, SIZE - 2, (2, BATCH_SIZE, 1, 1)), rng.uniform(1, 3, (BATCH_SIZE, 1, 1))
    rows, columns = np.mgrid[:SIZE, :SIZE]
    images = np.exp(-((rows - center[0]) ** 2 + (columns - center[1]) ** 2) / width ** 2)
    return torch.from_numpy(images).float().unsqueeze(1)


def build():
    return VAE()


def train(model):
    rng = np.random.default_rng(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = model.to(device)
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.5)
    losses = []
    model.train()
    for _ in range(STEPS):
        data = blobs(rng).to(device)
        eps = torch.tensor(rng.standard_normal((len(data), LATENT)), dtype=torch.float32, device=device)
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data, eps)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item() / len(data))
    model.eval()
    with torch.no_grad():
        sample = model.decode(torch.zeros(1, LATENT, device=device)).cpu().view(SIZE, SIZE)
    for row in sample:
        print("".join(" .:*#"[int(4.99 * v)] for v in row))
    return losses


if __name__ == "__main__":
    torch.manual_seed(1)
    for step, loss in enumerate(train(build())):
        print("step {:3d}: loss {:.4f}".format(step, loss))
