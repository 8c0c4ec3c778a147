import torch

x = torch.tensor([2.0], requires_grad=True)
y = torch.tensor([3.0], requires_grad=True)

z = x * y + x**2
print(z, z.grad_fn)
z.backward()
print(x.grad)
print(y.grad)
x.grad.zero_()
print(x.grad)
