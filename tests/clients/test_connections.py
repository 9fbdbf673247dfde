"""A thousand idle connections and five hundred streams on one router; clients that stop reading."""

import asyncio
import json
import pathlib
import resource
import socket
import statistics

import pytest

IDLE = 1000
STREAMS = 500
TOKENS = 40
WRITE_BUFFER = 1 << 20
COMPLETION = {"prompt": [7, 8, 9], "ignore_eos": True, "temperature": 1}


@pytest.fixture(scope="module")
def small_buffers(start):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    with start("--http.write-buffer-bytes-max", str(WRITE_BUFFER)) as running:
        yield running
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Connection:
    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, cluster, **options):
        return cls(*await asyncio.open_connection("127.0.0.1", cluster.ports[0], **options))

    def send(self, method, path, body=None):
        data = json.dumps(body).encode() if body else b""
        self.writer.write(f"{method} {path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n"
                          f"content-length: {len(data)}\r\n\r\n".encode() + data)

    async def head(self):
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), headers

    async def get(self, path):
        self.send("GET", path)
        status, headers = await self.head()
        return status, await self.reader.readexactly(int(headers["content-length"]))

    async def events(self):
        """The events of a stream, to the end of its last chunk."""
        status, headers = await self.head()
        assert status == 200 and headers["transfer-encoding"] == "chunked", status
        text = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            text += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return [event.removeprefix(b"data: ") for event in text.split(b"\n\n") if event]

    def close(self):
        self.writer.close()


async def stream(cluster, seed, tokens=TOKENS, **fields):
    """Runs one stream to its end on a connection of its own; seconds it took."""
    began = asyncio.get_running_loop().time()
    connection = await Connection.open(cluster)
    body = COMPLETION | {"stream": True, "max_tokens": tokens, "seed": seed, "stream_options": {"include_usage": True}} | fields
    connection.send("POST", "/v1/completions", body)
    events = await connection.events()
    connection.close()
    assert events[-1] == b"[DONE]"
    assert json.loads(events[-2])["usage"]["completion_tokens"] == tokens
    assert sum(choice["finish_reason"] == "length" for event in events[:-2] for choice in json.loads(event)["choices"]) == 1
    return asyncio.get_running_loop().time() - began


def resident_bytes(process):
    lines = pathlib.Path(f"/proc/{process.popen.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) << 10


def counted(cluster, name, **labels):
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(v for k, v in cluster.router_metrics().items() if k.startswith(name) and all(w in k for w in wanted))


def test_idle_connections_and_streams(small_buffers):
    router = small_buffers.routers[0]

    async def run():
        memory = [resident_bytes(router)]
        idle = []
        for _ in range(IDLE):
            idle.append(await Connection.open(small_buffers))
            assert (await idle[-1].get("/livez"))[0] == 200
        while counted(small_buffers, "baton_http_connections") < IDLE:  # it is counted now and then
            await asyncio.sleep(0.01)
        memory.append(resident_bytes(router))
        seconds = await asyncio.gather(*(stream(small_buffers, seed) for seed in range(STREAMS)))
        memory.append(resident_bytes(router))
        for connection in idle:
            assert (await connection.get("/livez"))[0] == 200, "an idle connection was lost"
            connection.close()
        return memory, sorted(seconds)

    (before, with_idle, at_end), seconds = asyncio.run(run())
    print(f"router memory: {(with_idle - before) / IDLE:.0f} bytes an idle connection, {(at_end - with_idle) / STREAMS:.0f} bytes a stream; "
          f"streams of {TOKENS} tokens took {seconds[0]:.2f} to {seconds[-1]:.2f} s, median {statistics.median(seconds):.2f}")
    answers = {key: count for key, count in small_buffers.router_metrics().items() if key.startswith("baton_http_requests_total")}
    assert sum(answers.values()) >= 2 * IDLE + STREAMS and all('status="200"' in key for key in answers), answers
    assert seconds[-1] < 10 * statistics.median(seconds), "a stream starved"
    assert (at_end - before) < 100 << 20


def test_a_low_soft_limit_of_descriptors_does_not_keep_clients_out(start):
    low = lambda name: ["prlimit", "--nofile=100:"] if name.startswith("router") else []  # noqa: E731

    async def run(cluster):
        idle = [await Connection.open(cluster) for _ in range(200)]
        for connection in idle:
            assert (await asyncio.wait_for(connection.get("/livez"), 20))[0] == 200
        for connection in idle:
            connection.close()

    with start(prefix=low) as cluster:
        asyncio.run(run(cluster))


def test_a_reader_that_stops_is_cut_off_and_slows_nobody(small_buffers):
    async def run():
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", small_buffers.ports[0]))
        body = json.dumps(COMPLETION | {"stream": True, "n": 8, "max_tokens": 3000, "logprobs": 5}).encode()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: "
                           + str(len(body)).encode() + b"\r\n\r\n" + body)
        with connection:  # from here on nothing is read
            others = 0
            while not counted(small_buffers, "vllm:request_success_total", finished_reason="abort"):
                await asyncio.gather(*(stream(small_buffers, seed) for seed in range(8)))
                others += 8
        while any(small_buffers.pages(name)["used"] for name in small_buffers.workers):  # its pages become free
            await asyncio.sleep(0.01)
        return others

    memory = resident_bytes(small_buffers.routers[0])
    others = asyncio.run(asyncio.wait_for(run(), 120))
    assert others > 0
    assert resident_bytes(small_buffers.routers[0]) - memory < 8 * WRITE_BUFFER
