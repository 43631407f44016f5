"""strand_chain.StringChain against foolscap.stringchain.StringChain: the same calls, the same answers.

usage: python test_stringchain.py (needs both installed: scripts/bindings.sh)
"""
import random
import unittest
import weakref

from foolscap.stringchain import StringChain as Original
from strand_chain import StringChain


class Both:
    """The two, given the same calls."""

    def __init__(self, theirs=None, ours=None):
        self.theirs = theirs if theirs is not None else Original()
        self.ours = ours if ours is not None else StringChain()

    def call(self, name, *args):
        answers = [getattr(chain, name)(*args) for chain in (self.theirs, self.ours)]
        if isinstance(answers[0], Original):
            return Both(*answers)
        assert answers[0] == answers[1], (name, args, answers)
        self.check()
        return answers[1]

    def check(self):
        assert len(self.theirs) == len(self.ours) == self.ours.len
        assert self.ours._assert_invariants()
        assert self.ours.as_bytes() == self.theirs.copy().as_bytes()


class AsTheOriginal(unittest.TestCase):
    def test_random_calls(self):
        rng = random.Random(20261121)
        for _ in range(300):
            both = Both()
            others = []
            for _ in range(rng.randrange(60)):
                n = rng.choice([0, 1, 3, 64, 65, 1023, 1024, 5000, 20000])
                piece = bytes(rng.getrandbits(8) for _ in range(7)) * (n // 7 + 1)
                name = rng.choice(
                    ["append"] * 5
                    + ["appendleft"] * 3
                    + ["popleft"] * 4
                    + ["popleft_new_stringchain", "trim", "copy", "clear", "as_bytes"]
                )
                if name in ("append", "appendleft"):
                    both.call(name, piece[:n])
                elif name in ("popleft", "trim"):
                    both.call(name, n)
                elif name == "popleft_new_stringchain":
                    other = both.call(name, n)
                    # The original's forgets where it ends unless it is put into one piece.
                    other.call("as_bytes")
                    others.append(other)
                elif name == "copy":
                    others.append(both.call(name))
                else:
                    both.call(name)
                if others and rng.randrange(4) == 0:
                    both, others[-1] = others[-1], both
            both.check()
            for other in others:
                other.check()

    def test_odd_numbers(self):
        for chain in Original(), StringChain():
            for name in "popleft", "popleft_new_stringchain":
                pop = getattr(chain, name)
                self.assertEqual((len(pop(None)), len(pop(0)), len(pop(-3))), (0, 0, 0), "an empty chain gives nothing")
                chain.append(b"abc")
                self.assertEqual((len(pop(None)), len(pop(0)), len(pop(False))), (0, 0, 0))
                with self.assertRaises(AssertionError):
                    pop(-1)
                with self.assertRaises(TypeError):
                    pop("2")
                self.assertEqual((len(chain), len(pop(True)), len(pop(10**30)), len(chain)), (3, 1, 2, 0))

    def test_only_bytes_go_in(self):
        class More(bytes):
            pass

        for chain in Original(), StringChain():
            for wrong in "text", bytearray(b"x"), None, 5:
                with self.assertRaises(AssertionError):
                    chain.append(wrong)
                with self.assertRaises(AssertionError):
                    chain.appendleft(wrong)
            chain.append(More(b"ab"))
            chain.appendleft(More(b"c"))
            self.assertEqual(chain.as_bytes(), b"cab")

    def test_a_subclass_stays_one(self):
        for base in Original, StringChain:

            class Sub(base):
                pass

            chain = Sub()
            chain.append(b"abc")
            self.assertIs(type(chain.popleft_new_stringchain(1)), Sub)
            self.assertIs(type(chain.copy()), Sub)
            self.assertEqual(chain.copy().as_bytes(), b"bc")
            self.assertTrue(weakref.ref(chain)() is chain)


    def test_what_fails_takes_nothing(self):
        for base in Original, StringChain:

            class Demanding(base):
                def __new__(cls, *arguments):
                    return super().__new__(cls)

                def __init__(self, argument):
                    super().__init__()

            chain = Demanding(1)
            chain.append(b"abc")
            with self.assertRaises(TypeError):
                chain.popleft_new_stringchain(2)
            with self.assertRaises(TypeError):
                chain.copy()
            self.assertEqual(chain.as_bytes(), b"abc")


class BesidesTheOriginal(unittest.TestCase):
    def test_peekleft(self):
        chain = StringChain()
        self.assertEqual(chain.peekleft(5), b"")
        chain.append(b"ab")
        chain.append(b"c" * 2000)
        for _ in range(2):
            self.assertEqual((chain.peekleft(1), chain.peekleft(3), chain.peekleft(10**20)), (b"a", b"abc", chain.as_bytes()))
        with self.assertRaises(AssertionError):
            chain.peekleft(-1)
        self.assertEqual(len(chain), 2002)

    def test_a_split_off_chain_ends_where_it_ends(self):
        chain = StringChain()
        chain.append(b"abcdef")
        self.assertEqual(chain.popleft_new_stringchain(2).popleft(10), b"ab")

    def test_trim_of_a_negative_number(self):
        chain = StringChain()
        chain.append(b"abc")
        with self.assertRaises(AssertionError):
            chain.trim(-1)
        self.assertEqual(len(chain), 3)

    def test_repr(self):
        self.assertEqual(repr(StringChain()), "<strand_chain.StringChain of 0 bytes>")


if __name__ == "__main__":
    unittest.main()
