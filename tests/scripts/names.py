"""Words of several lengths told apart by a bidirectional GRU over packed sequences."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

WORDS = {"days": "monday tuesday wednesday thursday friday saturday sunday today tomorrow yesterday",
         "months": "january february march april may june july august september october november december",
         "numbers": "one two three four five six seven eight nine ten eleven twelve thirteen fourteen",
         "colours": "red green blue yellow orange purple black white brown grey pink crimson"}
LETTERS = sorted(set("".join(WORDS.values())) - {" "})
EPOCHS = 15


class NameDataset(Dataset):
    def __init__(self):
        self.items = [(word, label) for label, text in enumerate(WORDS.values()) for word in text.split()]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        word, label = self.items[i]
        return torch.tensor([1 + LETTERS.index(c) for c in word]), label


def collate(batch):
    words, labels = zip(*batch)
    lengths = torch.tensor([len(w) for w in words])
    return pad_sequence(words, batch_first=True), lengths, torch.tensor(labels)


class Classifier(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.embedding = nn.Embedding(len(LETTERS) + 1, 12, padding_idx=0)
        self.gru = nn.GRU(12, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.attention = nn.Linear(2 * hidden, 1)
        self.fc = nn.Linear(4 * hidden, len(WORDS))

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.embedding(x), lengths.cpu(), batch_first=True, enforce_sorted=False)
        output, hidden = self.gru(packed)
        output, _ = pad_packed_sequence(output, batch_first=True, total_length=x.size(1))
        scores = self.attention(output).squeeze(-1).masked_fill(x == 0, float("-inf"))
        context = torch.bmm(scores.softmax(-1).unsqueeze(1), output).squeeze(1)
        return self.fc(torch.cat((context, hidden[-2], hidden[-1]), dim=1))


def build():
    return Classifier()


def train(model):
    dataset, rng = NameDataset(), np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    for epoch in range(EPOCHS):
        model.train()
        order = rng.permutation(len(dataset)).tolist()
        for x, lengths, y in DataLoader(dataset, batch_size=12, sampler=order, collate_fn=collate):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x, lengths), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        x, lengths, y = collate([dataset[i] for i in range(len(dataset))])
        print("mean loss of the last epoch: {:.3f}".format(F.cross_entropy(model(x, lengths), y).item()))
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    print(train(build())[-1])
