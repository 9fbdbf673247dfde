"""Requests in the background of a test, each checked."""

import concurrent.futures
import contextlib
import threading
import time


def wait_for(what, condition, timeout_s=120):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not seen in {timeout_s} s: {what}"
        time.sleep(0.02)


@contextlib.contextmanager
def load(ask, streams=4):
    """Calls ask(), which raises when an answer is wrong, one after the other on some threads, from before the block until after it. Yields
    a function that waits until every thread has had some more answers."""
    stop, done = threading.Event(), [0] * streams

    def stream(i):
        while not stop.is_set():
            ask()
            done[i] += 1

    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        running = [pool.submit(stream, i) for i in range(streams)]

        def more(answers=2):
            want = [n + answers for n in done]
            wait_for("answers under load", lambda: all(a >= b for a, b in zip(done, want)) or any(f.done() for f in running))
            for future in running:
                if future.done():
                    future.result()  # the error of a request

        try:
            more()
            yield more
            more()
        finally:
            stop.set()
    for future in running:
        future.result()
