import torch

x = torch.tensor([2.0], requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.1)
for step in range(3):
    y = x ** 2
    loss = y.sum()
    loss.backward()
    print(f"Step {step}: x.grad = {x.grad}")
    optimizer.step()
    print(f"  After step: x = {x}")
