import torch

x = torch.tensor([2.0], requires_grad=True)
y = x ** 2
loss = y.sum()

print(f"Before backward: loss.grad_fn = {loss.grad_fn}")
loss.backward()
print(f"After backward: loss.grad_fn = {loss.grad_fn}")
print(f"x.grad: {x.grad}")
try:
    loss.backward()
except RuntimeError as error:
    print("second time" in str(error))
try:
    loss.backward(retain_graph=True)
except RuntimeError as error:
    print("second time" in str(error))
