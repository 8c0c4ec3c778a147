import torch

x = torch.tensor([2.0], requires_grad=True)
for step in range(3):
    y = x ** 2
    loss = y.sum()
    loss.backward()
    print(f"Step {step}: x.grad = {x.grad}")
    with torch.no_grad():
        x -= 0.1 * x.grad
    print(f" After step: x = {x}")
