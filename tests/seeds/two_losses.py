import torch
import torch.nn as nn

model = nn.Linear(10, 5)
with torch.no_grad():                        # in place of random values, which differ
    for p in model.parameters():
        p.copy_(torch.linspace(-0.3, 0.4, p.numel()).view(p.shape))
x = torch.linspace(-1, 1, 40).view(4, 10).requires_grad_()
y1, y2 = torch.tensor([0, 3, 4, 1]), torch.tensor([2, 0, 1, 1])
output = model(x)
loss1 = nn.functional.cross_entropy(output, y1)
loss2 = nn.functional.cross_entropy(output, y2)
loss1.backward(retain_graph=True)
print(f"After loss1 backward: x.grad norm = {x.grad.norm().item():.4f}")
(0.5 * loss2).backward(retain_graph=True)
print(f"After loss2 backward: x.grad norm = {x.grad.norm().item():.4f}")
