import torch

x = torch.tensor([3.0], requires_grad=True)
hidden = x ** 2
output = hidden.detach() * x
output.backward()
print(hidden, output)
print(x.grad)

x = torch.tensor([2.0], requires_grad=True)
y = x ** 2
z = y.detach()
print(y.grad_fn is None, z.grad_fn, z.requires_grad)
w = z * 3
loss = w.sum()
try:
    loss.backward()
except RuntimeError as error:
    print("does not require grad" in str(error))
print(x.grad)

constant = (y + 1).detach()
z = constant * x
loss = z.sum()
loss.backward()
print(x.grad)
