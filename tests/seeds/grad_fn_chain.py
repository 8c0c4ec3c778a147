import torch

x = torch.tensor([1.0], requires_grad=True)
y = x * 2
z = y + 3

print(y.grad_fn)
print(z.grad_fn)
print(z.grad_fn.next_functions)
print(x.is_leaf)
print(y.is_leaf)
