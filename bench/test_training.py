"""What does a step of training cost: forward, backward and gradient descent?"""
import numpy as np

from bench import by_hand
from bench.programs import measure, program


def parameters(random, *shapes):
    """Scaled by what each sums over; vectors, which are biases, are small too."""
    return [random.standard_normal(s, np.float32) / np.float32(np.prod(s[1:] if len(s) == 4 else s[:1]) ** 0.5) for s in shapes]


def perceptron(batch):
    def arrays(random):
        return [*parameters(random, (784, 256), (256,), (256, 128), (128,), (128, 10), (10,)),
                random.random((batch, 784), np.float32), random.integers(0, 10, batch)]
    return arrays


@program(perceptron(64), leaves=6, kind="training")
def mlp(T, w1, b1, w2, b2, w3, b3, x, target):
    """A perceptron 784-256-128-10 with relu and cross entropy, a batch of 64."""
    h = T.relu(x @ w1 + b1)
    h = T.relu(h @ w2 + b2)
    return T.cross_entropy(h @ w3 + b3, target)


@program(perceptron(512), leaves=6, kind="training")
def mlp_large(T, w1, b1, w2, b2, w3, b3, x, target):
    """The same, a batch of 512."""
    return mlp.loss(T, w1, b1, w2, b2, w3, b3, x, target)


@mlp.by_hand
def mlp(w1, b1, w2, b2, w3, b3, x, target):
    h1, back1 = by_hand.linear(x, w1, b1)
    h1, relu1 = by_hand.relu(h1)
    h2, back2 = by_hand.linear(h1, w2, b2)
    h2, relu2 = by_hand.relu(h2)
    y, back3 = by_hand.linear(h2, w3, b3)
    loss, gradient = by_hand.cross_entropy(y, target)
    g, gw3, gb3 = back3(gradient())
    g, gw2, gb2 = back2(relu2(g))
    g = relu1(g)
    return loss, x.T @ g, g.sum(0), gw2, gb2, gw3, gb3


mlp_large.by_hand(mlp.floor)


def images(random):
    return [*parameters(random, (16, 1, 5, 5), (16, 1, 1), (32, 16, 5, 5), (32, 1, 1), (512, 10), (10,)),
            random.random((32, 1, 28, 28), np.float32), random.integers(0, 10, 32)]


@program(images, leaves=6, kind="training")
def cnn(T, k1, b1, k2, b2, w, b, x, target):
    """Two convolutions of 5 by 5 with relu and pooling, then a linear map; a batch of 32 images of 28 by 28."""
    h = T.max_pool2d(T.relu(T.conv2d(x, k1) + b1), 2)
    h = T.max_pool2d(T.relu(T.conv2d(h, k2) + b2), 2)
    return T.cross_entropy(h.reshape((len(target), -1)) @ w + b, target)


@cnn.by_hand
def cnn(k1, b1, k2, b2, w, b, x, target):
    h, conv1 = by_hand.conv2d(x, k1)
    h += b1
    h, relu1 = by_hand.relu(h)
    h, pool1 = by_hand.max_pool2d(h)
    h, conv2 = by_hand.conv2d(h, k2)
    h += b2
    h, relu2 = by_hand.relu(h)
    h, pool2 = by_hand.max_pool2d(h)
    y, linear = by_hand.linear(h.reshape(len(target), -1), w, b)
    loss, gradient = by_hand.cross_entropy(y, target)
    g, gw, gb = linear(gradient())
    g = relu2(pool2(g.reshape(h.shape)))
    gb2 = g.sum((0, 2, 3))[:, None, None]
    g, gk2 = conv2(g)
    g = relu1(pool1(g))
    return loss, conv1(g, needs_x=False)[1], g.sum((0, 2, 3))[:, None, None], gk2, gb2, gw, gb


BATCH, TIME, WIDTH, HEADS, WORDS = 8, 32, 64, 4, 200


def sentences(random):
    attention, block = [(WIDTH, WIDTH)] * 4, [(WIDTH, 4 * WIDTH), (4 * WIDTH,), (4 * WIDTH, WIDTH), (WIDTH,)]
    return [*parameters(random, (WORDS, WIDTH), *attention, (WIDTH,), (WIDTH,), *block, (WIDTH,), (WIDTH,), (WIDTH, WORDS)),
            random.integers(0, WORDS, (BATCH, TIME)), random.integers(0, WORDS, BATCH * TIME)]


@program(sentences, leaves=14, kind="training")
def transformer(T, table, wq, wk, wv, wo, n1, c1, w1, b1, w2, b2, n2, c2, out, words, target):
    """One block, normalised first, of width 64 and four heads, and a prediction of 200 words; 8 sentences of 32 words."""
    x = T.embedding(words, table)
    h = T.layer_norm(x, n1, c1)
    q, k, v = (T.swapaxes((h @ w).reshape((BATCH, TIME, HEADS, WIDTH // HEADS)), 1, 2) for w in (wq, wk, wv))
    a = T.softmax(q @ T.swapaxes(k, 2, 3) * (WIDTH // HEADS) ** -0.5, -1)
    x = x + T.swapaxes(a @ v, 1, 2).reshape((BATCH, TIME, WIDTH)) @ wo
    x = x + T.relu(T.layer_norm(x, n2, c2) @ w1 + b1) @ w2 + b2
    return T.cross_entropy(x.reshape((BATCH * TIME, WIDTH)) @ out, target)


@transformer.by_hand
def transformer(table, wq, wk, wv, wo, n1, c1, w1, b1, w2, b2, n2, c2, out, words, target):
    x = table[words]
    h, norm1 = by_hand.layer_norm(x, n1, c1)
    y, attention = by_hand.attention(h, wq, wk, wv, wo, HEADS)
    x = (x + y).reshape(-1, WIDTH)
    h, norm2 = by_hand.layer_norm(x, n2, c2)
    h, linear1 = by_hand.linear(h, w1, b1)
    h, relu = by_hand.relu(h)
    y, linear2 = by_hand.linear(h, w2, b2)
    x = x + y
    loss, gradient = by_hand.cross_entropy(x @ out, target)
    g = gradient()
    gx, gout = g @ out.T, x.T @ g
    g, gw2, gb2 = linear2(gx)
    g, gw1, gb1 = linear1(relu(g))
    g, gn2, gc2 = norm2(g)
    gx += g
    g, *gw = attention(gx)
    g, gn1, gc1 = norm1(g)
    g += gx.reshape(g.shape)
    gtable = np.zeros_like(table)
    np.add.at(gtable, words, g)
    return loss, gtable, *gw, gn1, gc1, gw1, gb1, gw2, gb2, gn2, gc2, gout


def test_training(program, peer, benchmark):
    measure(program, peer, benchmark)
