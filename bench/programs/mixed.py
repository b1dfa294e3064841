"""Dictionaries, strings, classes, exceptions, regular expressions, JSON; argument: rounds."""
import collections
import json
import re
import sys


class Matrix:
    def __init__(self, rows):
        self.rows = rows

    def __mul__(self, other):
        columns = list(zip(*other.rows))
        return Matrix([[sum(a * b for a, b in zip(r, c)) for c in columns] for r in self.rows])


def queens(n, row=0, columns=0, left=0, right=0):
    if row == n:
        return 1
    found = 0
    free = ~(columns | left | right) & ((1 << n) - 1)
    while free:
        bit = free & -free
        free ^= bit
        found += queens(n, row + 1, columns | bit, (left | bit) << 1, (right | bit) >> 1)
    return found


def sieve(limit):
    flags = bytearray([1]) * (limit + 1)
    for i in range(2, int(limit**0.5) + 1):
        if flags[i]:
            flags[i * i::i] = bytes(len(range(i * i, limit + 1, i)))
    return sum(flags[2:])


def words(rounds):
    counter = collections.Counter()
    state = 12345
    for _ in range(rounds):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        counter["w%d" % (state % 997)] += 1
    return counter.most_common(3)


def main():
    rounds = int(sys.argv[1])
    m = Matrix([[(i * j) % 7 for j in range(24)] for i in range(24)])
    for _ in range(rounds):
        m = Matrix([[x % 1000 for x in row] for row in (m * m).rows])
    print(sum(map(sum, m.rows)), queens(8), sieve(200000), words(rounds * 8000))
    text = json.dumps([{"id": i, "name": "n%d" % i, "tags": ["a", "b", str(i)]}
                       for i in range(rounds * 200)])
    print(len(re.findall(r'"n\d*7"', text)), len(json.loads(text)))
    failures = 0
    for i in range(rounds * 1000):
        try:
            failures += {}[i] if i % 3 == 0 else 0
        except KeyError:
            failures += 1
    print(failures)


main()
