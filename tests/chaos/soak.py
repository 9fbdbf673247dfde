"""Everything at once for a long time."""

import concurrent.futures
import time

from clients import send_and_leave
from harness import Options, cluster, kill, scenario, seeded, stopped
from oracles import Load, assert_memory_flat, memory, settle, wait_workers


class Counts:
    right = cut_off = errors = hangs = wrong = kills = stops = 0
    slowest_s = 0.0


def client(system, requests, rng, end, counts):
    while time.monotonic() < end:
        (prompt, fields), want = rng.choice(requests.items())
        if rng.random() < 0.2:
            body = {key: value for key, value in fields.items() if key != "ignore_eos"}
            send_and_leave(system.ports[0], prompt, rng.random() * 0.1, **body)
            counts.cut_off += 1
            continue
        begin = time.monotonic()
        try:
            got = system.complete(prompt, timeout_s=60, **fields)
        except TimeoutError:
            counts.hangs += 1
            continue
        except OSError as error:
            counts.errors += 1
            print("  error:", error.read().decode() if hasattr(error, "read") else repr(error), flush=True)
            continue
        counts.slowest_s = max(counts.slowest_s, time.monotonic() - begin)
        counts.right += got == want
        counts.wrong += got != want


def trouble(system, rng, counts):
    victim = system.workers[rng.choice(list(system.workers))]
    if rng.random() < 0.5:
        counts.kills += 1
        kill(victim)
        victim.start()
    else:
        counts.stops += 1
        with stopped(victim):
            time.sleep(2)


@scenario()
def soak():
    """2 x 2 workers, 64 streams, a fifth of them cut off, every few seconds a random worker killed or stopped."""
    rng, counts = seeded("soak"), Counts()
    with cluster(2, 2) as system:
        requests = Load(48, longest=120, max_tokens=120)
        end = time.monotonic() + Options.soak_s
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            jobs = [pool.submit(client, system, requests, seeded(f"client {n}"), end, counts) for n in range(64)]
            time.sleep(min(10, Options.soak_s / 4))
            before = memory(system)
            while time.monotonic() < end:
                time.sleep(min(Options.trouble_every_s, max(0, end - time.monotonic())))
                trouble(system, rng, counts)
            for job in jobs:
                job.result()
        print(f"  {counts.right} right, {counts.wrong} wrong, {counts.hangs} hangs, {counts.errors} errors, {counts.cut_off} cut off, "
              f"{counts.kills} kills, {counts.stops} stops, slowest answer {counts.slowest_s:.1f} s", flush=True)
        wait_workers(system, 4)
        settle(system)
        after = memory(system)
        print(f"  0 leaked pages, at most {system.watch.worst_quarantine:.0%} of a pool in quarantine; own memory, KiB before and after:",
              {name: (before.get(name), kib) for name, kib in after.items()}, flush=True)
        assert counts.wrong == 0 and counts.errors == 0 and counts.hangs == 0
        assert_memory_flat(before, after)
