import torch

x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x ** 2
try:
    y.backward()
except RuntimeError as error:
    print("scalar" in str(error))
y.sum().backward()
print(x.grad)

x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x ** 2
y.backward(torch.ones_like(y))
print(x.grad)

x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x ** 2
y[0].backward()
print(x.grad)
