import torch

x = torch.tensor(2.0)
w = torch.tensor(3.0, requires_grad=True)
b = torch.tensor(1.0, requires_grad=True)
y = w * x + b
loss = y * y

print(loss.grad_fn)
print(loss.grad_fn.next_functions)
print(y.grad_fn.next_functions)
print(w.is_leaf, y.is_leaf)

loss.backward()
print(w.grad, b.grad)
try:
    loss.backward()
except RuntimeError as error:
    print("second time" in str(error))

with torch.no_grad():
    z = w * x
print(z.requires_grad, z.grad_fn)
