"""Clients that do not behave: that leave in the middle, that read slowly."""

import http.client
import json
import socket
import time


def left_behind(port, prompt, stream=True, host="127.0.0.1", **fields):
    """Sends a completion and returns the open connection; close() it to leave."""
    body = json.dumps({"prompt": prompt, "stream": stream, "ignore_eos": True, **fields})
    connection = socket.create_connection((host, port))
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall((head + body).encode())
    return connection


def send_and_leave(port, prompt, after_s, **fields):
    """Sends a completion and closes the connection `after_s` later, whatever has come."""
    with left_behind(port, prompt, **fields):
        time.sleep(after_s)


class Stream:
    """A streamed completion that the scenario reads at its own pace."""

    def __init__(self, port, prompt, timeout_s=60, **fields):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
        body = json.dumps({"prompt": prompt, "stream": True, "return_token_ids": True, **fields})
        self.connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        self.reply = self.connection.getresponse()
        assert self.reply.status == 200, self.reply.read()
        self.ids = []

    def read(self, tokens=None):
        """Until so many tokens have come, or to the end."""
        while tokens is None or len(self.ids) < tokens:
            line = self.reply.readline().decode().strip()
            if line == "data: [DONE]":
                break
            if line.startswith("data: "):
                event = json.loads(line[6:])
                assert "error" not in event, event
                for choice in event["choices"]:
                    self.ids += choice.get("token_ids") or []
            elif not line and self.reply.isclosed():
                raise AssertionError(f"the stream ended early, after {len(self.ids)} tokens")
        return self.ids
