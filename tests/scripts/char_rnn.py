"""A character-level language model, trained on a piece of text and then asked to go on with it."""
import numpy as np
import torch
import torch.nn as nn

TEXT = ("it was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, "
        "it was the epoch of belief, it was the epoch of incredulity, it was the season of light, it was the season of darkness, ") * 4
CHARS = sorted(set(TEXT))
INDEX = {c: i for i, c in enumerate(CHARS)}
STEPS, CHUNK_LEN, BATCH_SIZE, HIDDEN, N_LAYERS = 60, 25, 8, 48, 2


class CharRNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size, n_layers=1, dropout=0.0):
        super(CharRNN, self).__init__()
        self.hidden_size = hidden_size
        self.n_layers = n_layers
        self.encoder = nn.Embedding(input_size, hidden_size)
        self.rnn = nn.LSTM(hidden_size, hidden_size, n_layers, dropout=dropout)
        self.decoder = nn.Linear(hidden_size, output_size)

    def forward(self, input, hidden):
        self.rnn.flatten_parameters()
        encoded = self.encoder(input)
        output, hidden = self.rnn(encoded, hidden)
        return self.decoder(output.view(-1, self.hidden_size)), hidden

    def init_hidden(self, batch_size):
        weight = next(self.parameters())
        return (weight.new_zeros(self.n_layers, batch_size, self.hidden_size),
                weight.new_zeros(self.n_layers, batch_size, self.hidden_size))


def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def char_tensor(string):
    return torch.tensor([INDEX[c] for c in string], dtype=torch.long)


def batchify(data):
    nbatch = data.size(0) // BATCH_SIZE
    return data.narrow(0, 0, nbatch * BATCH_SIZE).view(BATCH_SIZE, -1).t().contiguous()


def generate(model, prime="it was", length=40):
    model.eval()
    with torch.no_grad():
        hidden = model.init_hidden(1)
        _, hidden = model(char_tensor(prime[:-1]).unsqueeze(1), hidden)
        result, char = prime, prime[-1]
        for _ in range(length):
            output, hidden = model(char_tensor(char).view(1, 1), hidden)
            char = CHARS[output.argmax(1).item()]
            result += char
    model.train()
    return result


def build():
    return CharRNN(len(CHARS), HIDDEN, len(CHARS), N_LAYERS)


def train(model):
    data = batchify(char_tensor(TEXT))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    hidden, losses, at = model.init_hidden(BATCH_SIZE), [], 0
    for step in range(STEPS):
        if at + CHUNK_LEN >= data.size(0):
            at, hidden = 0, model.init_hidden(BATCH_SIZE)
        source, target = data[at:at + CHUNK_LEN], data[at + 1:at + 1 + CHUNK_LEN].reshape(-1)
        at += CHUNK_LEN
        hidden = repackage_hidden(hidden)
        model.zero_grad()
        output, hidden = model(source, hidden)
        loss = criterion(output, target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
        if step % 20 == 19:
            print("step {:3d} | ppl {:8.2f}".format(step, np.exp(loss.item())))
    return losses


if __name__ == "__main__":
    torch.manual_seed(1)
    net = build()
    train(net)
    print(generate(net))
