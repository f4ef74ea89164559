"""Checks of the generator: it is reproducible, its sides share no value, its own answers satisfy its judges.

usage: python check_generator.py
"""
import mixture
from source import Source, is_held_out

COUNT = 400


def main():
    for task, module in mixture.TASKS.items():
        seen = {}
        for side, held_out in (("train", False), ("held out", True)):
            first, again = (Source(7, held_out), Source(7, held_out))
            samples = [module.make(first) for _ in range(COUNT)]
            assert [s.answer for s in samples] == [module.make(again).answer for _ in range(COUNT)], f"{task} is not reproducible"
            for sample in samples:
                assert module.judge(sample, sample.completion()), f"{task}: the judge refuses {sample.answer!r}"
                for name in sample.lowered:
                    assert is_held_out(name) == held_out, f"{task}: {name!r} on the wrong side"
            seen[side] = {sample.messages[0]["content"] for sample in samples}
        assert not seen["train"] & seen["held out"], f"{task}: a prompt occurs on both sides"
        print(f"{task:11} ok")


if __name__ == "__main__":
    main()
