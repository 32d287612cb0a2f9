"""A discrete-event simulation of engines that batch continuously: the oracle of the closed form.

Rows start while their contexts fit; each decode step adds a token to every row; a row that ends leaves its room to the
next. Where the room overflows, the youngest row waits again and keeps its tokens, which are read anew when it goes on.
"""

import numpy as np


def engine_seconds(engine, row_lengths, prompt, room):
    """Seconds of one engine from its first decode step to the end of its last row; row_lengths is [rows]."""
    waiting = [(int(length), 0) for length in row_lengths[::-1]]
    lengths, ages = np.zeros(0, int), np.zeros(0, int)
    seconds = 0.0
    while waiting or len(lengths):
        while waiting and (not len(lengths) or (ages + prompt + 1).sum() + waiting[-1][1] + prompt + 1 <= room):
            length, age = waiting.pop()
            seconds += engine.prefill(prompt + age) if age else 0.0
            lengths, ages = np.append(lengths, length), np.append(ages, age)
        while len(lengths) > 1 and (ages + prompt).sum() > room:
            youngest = int(ages.argmin())
            waiting.append((int(lengths[youngest]), int(ages[youngest])))
            lengths, ages = np.delete(lengths, youngest), np.delete(ages, youngest)
        batch, context = np.array([len(lengths)], float), np.array([(ages + prompt).sum()], float)
        seconds += float(engine.decode(batch, context)[0])
        ages = ages + 1
        lengths, ages = lengths[ages < lengths], ages[ages < lengths]
    return seconds


def simulate(engine, shape, rows, prompt, room, repeats, seed):
    """Mean seconds of the engine that ends last, over repeated draws; and their standard error."""
    generator = np.random.Generator(np.random.Philox(seed))
    found = []
    for _ in range(repeats):
        drawn = shape.quantile(generator.random(rows)).reshape(engine.cluster.engines, -1)
        found.append(max(engine_seconds(engine, mine, prompt, room) for mine in drawn))
    return float(np.mean(found)), float(np.std(found, ddof=1) / repeats**0.5)
