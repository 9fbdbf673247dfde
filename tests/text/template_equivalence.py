#!/usr/bin/env python3
"""Compares Baton's chat templates with PyPI jinja2 in the settings that Hugging Face transformers runs it in.

    python3 tests/text/template_equivalence.py --driver build/release/bin/template-driver [--seed N] [--random N]

Templates of tests/text/templates with every conversation and setting, then snippets of every language feature, then random
expressions. Text must be equal; where jinja2 fails Baton must fail, with the template's own message for raise_exception.
Text that a conversation carries must come back marked as the user's. Exit status 1 on any difference.
"""

import argparse
import datetime
import functools
import json
import random
import re
import subprocess
import sys
import warnings
from pathlib import Path

from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

import template_conversations
import template_snippets

NOW = 1786453205  # a Tuesday
SHOWN_DIFFERENCES = 20
MARK = "\u2042"  # stands for the user's text in the check of marks
RANDOM_DEPTH = 3


class RaisedByTemplate(Exception):
    pass


class Generation(Extension):
    """{% generation %}: transformers tracks the text inside; for the output it is a scope."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    def body(self, caller):
        return caller()


def reference_environment():
    def raise_exception(message):
        raise RaisedByTemplate(str(message))

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


class Driver:
    def __init__(self, path):
        self.path = path
        self.start()

    def start(self):
        self.process = subprocess.Popen([self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def render(self, template, context):
        request = json.dumps({"template": template, "context": context, "now": NOW})
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.start()
            return {"died": True}
        return json.loads(line)


@functools.lru_cache(maxsize=4)
def compiled(environment, template):
    return environment.from_string(template)


def expected(environment, template, context):
    try:
        # A copy by JSON: what the driver sees.
        return {"text": compiled(environment, template).render(**json.loads(json.dumps(context)))}
    except RaisedByTemplate as error:
        return {"raised": str(error)}
    except Exception as error:  # any error of Python counts as one
        return {"error": f"{type(error).__name__}: {error}"}


def agrees(want, got):
    if "text" in want:
        # Where an object is printed by its address there is nothing to compare.
        if re.search(r" at 0x[0-9a-f]+>|<class |<Undefined|Undefined", want["text"]):
            return True
        return got.get("text") == want["text"]
    return "error" in got and got["error"] == want.get("raised", got["error"])


class Comparison:
    def __init__(self, driver):
        self.environment = reference_environment()
        self.driver = driver
        self.count = 0
        self.failed = 0
        self.differences = []

    def check(self, name, template, context):
        want = expected(self.environment, template, context)
        got = self.driver.render(template, context)
        self.count += 1
        self.failed += "text" not in want
        if not agrees(want, got):
            self.differences.append((name, want, got))
        return got

    def check_marks(self, name, template, context):
        """Renders with every string of the conversation replaced by marks."""
        marked = dict(context, messages=[replace_strings(m) for m in context["messages"]])
        got = self.check(name + ", marked", template, marked)
        if "text" not in got:
            return
        user = "".join(got["user"]).replace(json.dumps(MARK)[1:-1], MARK)
        if got["text"].replace(json.dumps(MARK)[1:-1], MARK).count(MARK) != user.count(MARK):
            self.differences.append((name + ", marks", "every mark is the user's", got))
        rest = re.sub("|".join(sorted(known_words(marked), key=len, reverse=True)), "", user)
        if rest.strip("\"'{}[]:, \n0123456789.eE+-"):
            self.differences.append((name + ", marks", f"only the user's text: {rest!r}", got))


def replace_strings(value, key=None):
    if isinstance(value, dict):
        return {k: replace_strings(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [replace_strings(v) for v in value]
    is_text = isinstance(value, str) and key not in ("role", "type", "name", "id", "tool_call_id")
    return MARK * 3 if is_text else value


def known_words(value):
    """All strings and keys of a conversation, as regular expressions."""
    if isinstance(value, dict):
        return {w for k, v in value.items() for w in known_words(v) | {re.escape(k)}}
    if isinstance(value, list):
        return {w for v in value for w in known_words(v)} | {MARK}
    return {re.escape(value)} if isinstance(value, str) and value else {MARK}


def check_families(comparison):
    for path in sorted((Path(__file__).parent / "templates").glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        rendered = 0
        for title, messages in template_conversations.CONVERSATIONS.items():
            for setting, values in template_conversations.SETTINGS.items():
                context = {"messages": messages, "bos_token": "<s>", "eos_token": "</s>", **values}
                name = f"{path.stem}: {title}, {setting}"
                rendered += "text" in comparison.check(name, template, context)
                comparison.check_marks(name, template, context)
        print(f"{path.stem}: {rendered} conversations rendered")
        if rendered < 20:
            comparison.differences.append((path.stem, "20 rendered", rendered))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random", type=int, default=1500, help="random expressions")
    arguments = parser.parse_args()

    warnings.simplefilter("ignore", SyntaxWarning)  # random expressions subscript numbers
    comparison = Comparison(Driver(arguments.driver))
    check_families(comparison)
    variables = template_snippets.VARIABLES
    for expression in template_snippets.expressions():
        comparison.check(expression, "{{ " + expression + " }}", variables)
    for template in template_snippets.TEMPLATES:
        comparison.check(template, template, variables)
    print(f"seed {arguments.seed}")
    rng = random.Random(arguments.seed)
    for _ in range(arguments.random):
        expression = template_snippets.random_expression(rng, RANDOM_DEPTH)
        comparison.check(expression, "{{ " + expression + " }}", variables)

    for name, want, got in comparison.differences[:SHOWN_DIFFERENCES]:
        print(f"DIFFERENT {name}\n  want {want}\n  got  {got}")
    print(f"{comparison.count} compared, {comparison.failed} of them errors, {len(comparison.differences)} different")
    print(f"{comparison.count - len(comparison.differences)} passed, {len(comparison.differences)} failed")
    return 1 if comparison.differences else 0


if __name__ == "__main__":
    sys.exit(main())
