"""Digits turned round by an encoder and a decoder with attention, trained with teacher forcing."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim

SOS_token, EOS_token, DIGITS, LENGTH, HIDDEN, STEPS, BATCH_SIZE = 10, 11, 10, 6, 48, 50, 16


class EncoderRNN(nn.Module):
    def __init__(self, input_size, hidden_size, dropout_p=0.0):
        super(EncoderRNN, self).__init__()
        self.embedding = nn.Embedding(input_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, input):
        embedded = self.dropout(self.embedding(input))
        return self.gru(embedded)


class BahdanauAttention(nn.Module):
    def __init__(self, hidden_size):
        super(BahdanauAttention, self).__init__()
        self.Wa = nn.Linear(hidden_size, hidden_size)
        self.Ua = nn.Linear(hidden_size, hidden_size)
        self.Va = nn.Linear(hidden_size, 1)

    def forward(self, query, keys):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys)))
        weights = F.softmax(scores.squeeze(2).unsqueeze(1), dim=-1)
        return torch.bmm(weights, keys), weights


class AttnDecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size):
        super(AttnDecoderRNN, self).__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.attention = BahdanauAttention(hidden_size)
        self.cell = nn.LSTMCell(2 * hidden_size, hidden_size)
        self.out = nn.Linear(hidden_size, output_size)

    def forward(self, encoder_outputs, encoder_hidden, target_tensor=None):
        batch_size = encoder_outputs.size(0)
        input = torch.empty(batch_size, dtype=torch.long, device=encoder_outputs.device).fill_(SOS_token)
        state = encoder_hidden[0], torch.zeros_like(encoder_hidden[0])
        outputs = []
        for i in range(LENGTH + 1):
            context, _ = self.attention(state[0].unsqueeze(1), encoder_outputs)
            state = self.cell(torch.cat((self.embedding(input), context.squeeze(1)), dim=1), state)
            outputs.append(self.out(state[0]))
            input = outputs[-1].topk(1)[1].squeeze(-1).detach() if target_tensor is None else target_tensor[:, i]
        return F.log_softmax(torch.stack(outputs, dim=1), dim=-1)


def pairs(rng):
    source = rng.integers(0, DIGITS, (BATCH_SIZE, LENGTH))
    target = np.concatenate([source[:, ::-1], np.full((BATCH_SIZE, 1), EOS_token)], 1)
    return torch.from_numpy(source), torch.from_numpy(target)


def build():
    return EncoderRNN(DIGITS, HIDDEN), AttnDecoderRNN(HIDDEN, DIGITS + 2)


def train(encoder, decoder):
    rng = np.random.default_rng(0)
    encoder_optimizer = optim.Adam(encoder.parameters(), lr=0.01)
    decoder_optimizer = optim.Adam(decoder.parameters(), lr=0.01)
    criterion = nn.NLLLoss()
    losses = []
    for _ in range(STEPS):
        source, target = pairs(rng)
        encoder_optimizer.zero_grad()
        decoder_optimizer.zero_grad()
        encoder_outputs, encoder_hidden = encoder(source)
        decoder_outputs = decoder(encoder_outputs, encoder_hidden, target)
        loss = criterion(decoder_outputs.view(-1, decoder_outputs.size(-1)), target.view(-1))
        loss.backward()
        encoder_optimizer.step()
        decoder_optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        source, target = pairs(rng)
        found = decoder(*encoder(source)).argmax(-1)
        print("right: {:.3f}".format((found == target).float().mean().item()))
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    print(train(*build())[-1])
