import torch
import torch.nn as nn

generator = nn.Linear(10, 5)
discriminator = nn.Linear(5, 1)
with torch.no_grad():                        # in place of random values, which differ
    for p in [*generator.parameters(), *discriminator.parameters()]:
        p.copy_(torch.linspace(-0.3, 0.4, p.numel()).view(p.shape))
z = torch.linspace(-1, 1, 40).view(4, 10)
fake_data = generator(z)
fake_scores = discriminator(fake_data.detach())
d_loss = -fake_scores.mean()
fake_scores_for_gen = discriminator(fake_data)
g_loss = fake_scores_for_gen.mean()
print(f"Discriminator loss: {d_loss.item():.4f}")
print(f"Generator loss: {g_loss.item():.4f}")
d_loss.backward()
print(generator.weight.grad, discriminator.bias.grad)
g_loss.backward()
print(generator.bias.grad)
