import torch

x = torch.tensor([2.0], requires_grad=True)
y = x ** 2
z = y * 3
loss = z.sum()

print(f"loss.grad_fn: {loss.grad_fn}")
print(f"loss.grad_fn.next_functions: {loss.grad_fn.next_functions}")

print("\n--- Graph Structure ---")
print(f"loss -> {loss.grad_fn}")
print(f" -> {loss.grad_fn.next_functions[0][0]}")
print(f" -> {loss.grad_fn.next_functions[0][0].next_functions}")

print(f"\nx.grad_fn: {x.grad_fn}")


def print_grad_fn_chain(tensor, name="tensor"):
    print(f"\n{name}:")
    current = tensor
    depth = 0
    while hasattr(current, "grad_fn") and current.grad_fn is not None:
        print(f" {' ' * depth}{current.grad_fn}")
        if hasattr(current.grad_fn, "next_functions") and current.grad_fn.next_functions:
            next_fn, _ = current.grad_fn.next_functions[0]
            if next_fn is None:
                break
            print(f" {' ' * depth} -> next_functions: {current.grad_fn.next_functions}")
            current = next_fn
            depth += 1
        else:
            break


print_grad_fn_chain(loss, "loss")
