import torch

x = torch.tensor([2.0], requires_grad=True)
y = x ** 2
y += 1
print(y)
y.backward()
print(x.grad)
