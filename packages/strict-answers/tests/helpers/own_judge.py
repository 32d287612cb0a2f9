"""A judge that fails in every way, for tests of the pool: `load` makes it in a worker, `OwnGrader` is its grader."""

import os
import sys
import time

from strict_answers import Grader, Verdict
from strict_answers.grader import WorkerRequest
from strict_answers.journal import key_of
from strict_answers.process import Judge


def load(argument, seconds):
    """What a worker loads."""
    if argument != "good":
        raise ImportError("no_such_module_anywhere")

    def judge(request):
        text, gold = request["response"], request["gold"]
        print("noise on the pipe")
        if text == "hang" or (text == "hang once" and not os.path.exists(gold)):
            open(gold, "w").close()
            time.sleep(60)
        if text == "eat":
            return {"value": len(bytearray(10 * 2**30))}
        if text == "die":
            os._exit(1)
        if text == "leave":
            sys.exit("bye")
        if text == "raise":
            raise KeyError("no such thing\x1b[2J\u202e" + "x" * 5000)
        if text == "secret":
            return {"value": int(any("SECRET" in name for name in os.environ))}
        return {"value": len(text) / 8}

    return judge


class OwnGrader(Grader):
    """Passes from half on."""

    def __init__(self, argument="good", seconds=0.4, **options):
        judge = Judge("own_judge:load", argument, seconds, 256, sealed=False)
        super().__init__(judge=judge, patience=seconds, **options)
        self.identity = f"own {argument}"

    def prepare(self, item):
        return WorkerRequest({"response": item.response, "gold": item.gold}, None)

    def key(self, item):
        return key_of(self.identity, item.gold, item.response)

    def parse(self, request, message):
        if "error" in message:
            return Verdict(None, None, "own", message["error"])
        return Verdict(message["value"] >= 0.5, None, "own", "graded", message["value"])
