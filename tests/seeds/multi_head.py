import torch
import torch.nn as nn


class MultiHeadModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(10, 32)
        self.task1_head = nn.Linear(32, 5)
        self.task2_head = nn.Linear(32, 3)

    def forward(self, x):
        features = torch.relu(self.shared(x))
        return self.task1_head(features), self.task2_head(features)


model = MultiHeadModel()
with torch.no_grad():                        # in place of random values, which differ
    for p in model.parameters():
        p.copy_(torch.linspace(-0.3, 0.4, p.numel()).view(p.shape))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
x = torch.linspace(-1, 1, 40).view(4, 10)
y1, y2 = torch.tensor([0, 3, 4, 1]), torch.tensor([2, 0, 1, 1])
for step in range(3):
    task1_out, task2_out = model(x)
    loss1 = nn.functional.cross_entropy(task1_out, y1)
    loss2 = nn.functional.cross_entropy(task2_out, y2)
    total_loss = loss1 + loss2
    optimizer.zero_grad()
    total_loss.backward()
    optimizer.step()
    print(f"Total loss: {total_loss.item():.4f}")
print(model)
