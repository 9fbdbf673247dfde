"""Networks that fail. Router, prefill and decode each in a network namespace of its own, joined by a bridge: loss, delay,
narrow lines and partitions are the kernel's doing, pages travel by tcp."""

import contextlib
import subprocess
import time

from harness import LEASE_S, Skipped, cluster, scenario, seeded
from oracles import Load, assert_none, settle, still_right

BRIDGE = "batonbr"
PLACES = {"router-0": "10.77.0.1", "router-1": "10.77.0.2", "prefill-0": "10.77.0.11", "prefill-1": "10.77.0.12",
          "decode-0": "10.77.0.21", "decode-1": "10.77.0.22"}


def command(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True)
    if check and done.returncode:
        raise Skipped(f"this machine cannot do `{' '.join(words)}`: {done.stderr.strip()}")
    return done.returncode == 0


def ip(*words, check=True):
    return command("ip", *words, check=check)


def netns(name):
    return "baton-" + name


def line(name):
    """The end of a process's cable that is plugged into the bridge."""
    return "bt" + name.replace("-", "")


def inside(name, *words, check=True):
    return command("ip", "netns", "exec", netns(name), *words, check=check)


def tear_down():
    for name in PLACES:
        ip("netns", "del", netns(name), check=False)
        ip("link", "del", line(name), check=False)
    ip("link", "del", BRIDGE, check=False)


def set_up():
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("addr", "add", "10.77.0.254/24", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")
    for name, address in PLACES.items():
        ip("netns", "add", netns(name))
        ip("link", "add", line(name), "type", "veth", "peer", "name", "eth0", "netns", netns(name))
        ip("link", "set", line(name), "master", BRIDGE, "up")
        inside(name, "ip", "addr", "add", f"{address}/24", "dev", "eth0")
        inside(name, "ip", "link", "set", "eth0", "up")
        inside(name, "ip", "link", "set", "lo", "up")


@contextlib.contextmanager
def spread_out(prefill=2, decode=1, worker=None, **more):
    """A cluster whose processes see each other over the bridge alone."""
    try:
        command("ip", "-V")
    except FileNotFoundError as error:
        raise Skipped("no iproute2 here") from error
    tear_down()
    try:
        set_up()
        with cluster(prefill, decode, worker={"--kvtransfer.transports": "tcp", **(worker or {})}, router={"--http.host": "0.0.0.0"},
                     places=PLACES, prefix=lambda name: ["ip", "netns", "exec", netns(name)], **more) as system:
            yield system
    finally:
        tear_down()


def throttle(name, rate):
    """Only large packets, which carry pages: heartbeats have the line to themselves."""
    inside(name, "tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "10")
    inside(name, "tc", "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:10", "htb", "rate", "1gbit")
    inside(name, "tc", "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:20", "htb", "rate", rate)
    inside(name, "nft", "add", "table", "inet", "chaos")
    inside(name, "nft", "add", "chain", "inet", "chaos", "leaving", "{ type filter hook postrouting priority 0 ; }")
    inside(name, "nft", "add", "rule", "inet", "chaos", "leaving", "meta", "length", ">", "1000", "meta", "priority", "set", "1:20")


@contextlib.contextmanager
def slow_lines(prefill, decode, worker=None, **more):
    """The same with 64 Mbit/s of pages from each prefill worker: copies queue up."""
    with spread_out(prefill, decode, worker, **more) as system:
        for name in system.workers:
            if name.startswith("prefill"):
                throttle(name, "64mbit")
        yield system


def under(*qdisc, instead=None, repeat=2):
    """A load while every line is shaped by tc, or by what a kernel without that qdisc has `instead`."""
    with spread_out() as system:
        requests = Load(24)
        for name in PLACES:
            if not inside(name, "tc", "qdisc", "add", "dev", "eth0", "root", *qdisc, check=instead is None):
                instead(name)
        assert_none(requests.run(system, repeat=repeat, timeout_s=120))
        settle(system)


def drop_one_in_twenty(name):
    inside(name, "nft", "add", "table", "inet", "chaos")
    inside(name, "nft", "add", "chain", "inet", "chaos", "arriving", "{ type filter hook input priority 0 ; }")
    inside(name, "nft", "add", "rule", "inet", "chaos", "arriving", "numgen", "random", "mod", "20", "==", "0", "drop")


@scenario()
def five_percent_of_all_packets_are_lost():
    """TCP repairs it; a lease that runs out costs a replay, never an error."""
    under("netem", "loss", "5%", instead=drop_one_in_twenty)


@scenario()
def twenty_milliseconds_of_delay_with_jitter():
    """Slow, but right."""
    under("netem", "delay", "20ms", "10ms")


@scenario()
def a_narrow_network_drops_what_does_not_fit():
    """100 Mbit/s behind a queue of 32 KiB: bursts lose packets all the time."""
    under("tbf", "rate", "100mbit", "burst", "32kb", "limit", "32kb")


def partitioned(name, seconds):
    with spread_out() as system:
        requests = Load(24)

        def during(system):
            ip("link", "set", line(name), "down")
            time.sleep(seconds)
            ip("link", "set", line(name), "up")

        assert_none(requests.run(system, during, repeat=6, timeout_s=120))
        still_right(system, requests, 3)


@scenario()
def a_prefill_worker_is_cut_off_for_ten_seconds():
    """Its requests are replayed on the other at once; it joins again when it is heard."""
    partitioned("prefill-0", 10)


@scenario()
def the_decode_worker_is_cut_off_for_ten_seconds():
    """Requests wait and are replayed when it is back."""
    partitioned("decode-0", 10)


@scenario()
def the_router_is_cut_off_for_five_seconds():
    """Its workers give everything up; it replays when the line is back, and its clients see a pause."""
    with spread_out() as system:
        requests = Load(24, max_tokens=200)

        def during(system):
            for name in ("prefill-0", "prefill-1", "decode-0"):
                ip("link", "set", line(name), "down")
            time.sleep(5)
            for name in ("prefill-0", "prefill-1", "decode-0"):
                ip("link", "set", line(name), "up")

        assert_none(requests.run(system, during, repeat=2, timeout_s=120))
        still_right(system, requests, 3)


@scenario()
def only_the_line_between_prefill_and_decode_is_cut():
    """Both still hear the router: GRANT, COMMIT and ACK are lost with the connection, four times."""
    with spread_out() as system:
        requests = Load(24, shortest=200, longest=400, max_tokens=20)

        def during(system):
            for _ in range(4):
                for isolated in ("on", "off"):
                    for name in ("prefill-0", "decode-0"):
                        command("bridge", "link", "set", "dev", line(name), "isolated", isolated)
                    time.sleep(1.5 * LEASE_S)

        assert_none(requests.run(system, during, repeat=20, timeout_s=120))
        still_right(system, requests, 3)


@scenario()
def short_cuts_at_random_moments():
    """Ten of them, some shorter and some longer than the lease."""
    rng = seeded("cuts")
    with spread_out() as system:
        requests = Load(24)

        def during(system):
            for _ in range(10):
                name = rng.choice(["prefill-0", "prefill-1", "decode-0"])
                ip("link", "set", line(name), "down")
                time.sleep(rng.choice([0.1, 0.5, 1.5]))
                ip("link", "set", line(name), "up")
                time.sleep(rng.random() * 0.3)

        assert_none(requests.run(system, during, repeat=12, timeout_s=120))
        still_right(system, requests, 3)
