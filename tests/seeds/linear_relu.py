import torch

x = torch.tensor([[1.0, 2.0]], requires_grad=True)
W = torch.tensor([[0.5, -0.3], [0.2, 0.4]], requires_grad=True)
b = torch.tensor([[0.1, -0.2]], requires_grad=True)

z = torch.matmul(x, W) + b
y = torch.relu(z)
loss = y.sum()

loss.backward()
print(z)
print(loss)
print(x.grad)
print(W.grad)
print(b.grad)
