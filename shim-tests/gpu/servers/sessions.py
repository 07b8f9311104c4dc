"""Running programs: how each is started, asked and ended. One way for programs that speak lines, one for OpenAI-style HTTP servers."""

import json
import os
import queue
import shlex
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import lines


# Whatever proxies the environment names: the servers are on this machine.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Trouble(Exception):
    """Something that should not be: one sentence."""


class Missing(Exception):
    """What the program needs and this machine has not."""


def text_of_status(code):
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"


class Session:
    """One process, its log, and its end. `left()` says how many seconds there are."""

    def __init__(self, command, environment, log, left):
        self.left = left
        self.log = log
        self.output = open(log, "wb")
        self.output.write(f"$ {shlex.join(command)}\n".encode())
        self.output.flush()
        self.process = subprocess.Popen(command, env=environment, start_new_session=True, **self.pipes())
        self.pid = self.process.pid

    def pipes(self):
        return {"stdin": subprocess.DEVNULL, "stdout": self.output, "stderr": self.output}

    def check_lives(self):
        code = self.process.poll()
        if code is not None:
            raise Trouble(f"it ended with {text_of_status(code)}: {self.tail()}")

    def tail(self):
        self.output.flush()
        with open(self.log, errors="replace") as log:
            said = [line.strip() for line in log.read().splitlines()[1:] if line.strip()]
        return " | ".join(said[-3:])[-400:]

    def wait(self):
        """How the process ended."""
        try:
            return text_of_status(self.process.wait(max(1, min(60, self.left()))))
        except subprocess.TimeoutExpired:
            raise Trouble("it does not end") from None

    def kill(self):
        """Whatever is left of the program, its workers too: they are in its group. Once."""
        if self.output.closed:
            return
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.output.close()


class Lines(Session):
    """Answers to `ask` in one line."""

    def __init__(self, *arguments, ask="ask", reply="answer "):
        self.ask_word, self.reply = ask, reply
        self.said = queue.Queue()
        super().__init__(*arguments)
        threading.Thread(target=self.listen, daemon=True).start()

    def pipes(self):
        return {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.output}

    def listen(self):
        for line in self.process.stdout:
            self.said.put(line.decode(errors="replace").strip())
        self.said.put(None)

    def hear(self, *beginnings):
        """The next line with such a beginning. What libraries print in between goes into the log."""
        while True:
            try:
                line = self.said.get(timeout=max(0.1, self.left()))
            except queue.Empty:
                raise Trouble(f"no answer in time: {self.tail()}") from None
            if line is None:
                self.output_ended()
            if line.startswith(beginnings):
                return line
            self.output.write(line.encode() + b"\n")

    def output_ended(self):
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            raise Trouble("it has closed its output") from None
        raise Trouble(f"it ended with {text_of_status(self.process.returncode)}: {self.tail()}")

    def ready(self):
        line = self.hear("ready", "missing ")
        if line.startswith("missing "):
            raise Missing(line[len("missing ") :])

    def say(self, word):
        try:
            self.process.stdin.write(word.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.output_ended()

    def ask(self):
        self.say(self.ask_word)
        return self.hear(self.reply)

    def stop(self):
        self.say("quit")
        return self.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def pieces_of(response):
    """The pieces of text of an event stream, as they come."""
    for line in response:
        line = line.strip()
        if not line.startswith(b"data:"):
            continue
        data = line[len(b"data:") :].strip()
        if data == b"[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise Trouble(f"the stream broke off: {event['error']}")
        for choice in event.get("choices", ()):
            text = choice.get("text") or (choice.get("delta") or {}).get("content")
            if text:
                yield text


class Completions(Session):
    """An OpenAI-style server: one greedy completion, one drawn with a seed, one chat that streams."""

    TOKENS = 48
    STREAMED = 160

    def __init__(self, command, *arguments, model, health="/health"):
        self.port = free_port()
        self.model = model
        self.health = health
        super().__init__([word.replace("{port}", str(self.port)) for word in command], *arguments)

    def open(self, path, body=None):
        data = None if body is None else json.dumps({"model": self.model, **body}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"})
        try:
            return DIRECT.open(request, timeout=max(1, self.left()))
        except urllib.error.HTTPError as error:
            raise Trouble(f"{path}: HTTP {error.code}: {error.read(300).decode(errors='replace')}") from None

    def ready(self):
        while True:
            self.check_lives()
            try:
                with self.open(self.health):
                    return
            except (OSError, Trouble) as error:
                if self.left() <= 1:
                    raise Trouble(f"it does not listen: {error}: {self.tail()}") from None
            time.sleep(0.3)

    def completion(self, **options):
        with self.open("/v1/completions", {"prompt": "w00001 w00002 w00003", "max_tokens": self.TOKENS, **options}) as response:
            return json.load(response)["choices"][0]["text"]

    def stream(self):
        """An opened stream of a chat, drawn with a seed."""
        messages = [{"role": "user", "content": "w00005 w00007 w00011"}]
        return self.open(
            "/v1/chat/completions",
            {"messages": messages, "max_tokens": self.STREAMED, "temperature": 1.0, "seed": 11, "stream": True},
        )

    def ask(self):
        try:
            texts = [self.completion(temperature=0.0), self.completion(temperature=1.0, seed=7)]
            with self.stream() as response:
                self.streamed = "".join(pieces_of(response))
        except OSError as error:
            self.check_lives()
            raise Trouble(f"no answer: {error}") from None
        texts.append(self.streamed)
        if not all(texts):
            raise Trouble(f"an empty answer: {texts}")
        if texts[0] == texts[1]:
            raise Trouble("the answer that should be drawn with a seed is the greedy one")
        return " ".join(lines.digest(text.encode()) + f":{len(text.split())}" for text in texts)

    def ask_across(self, between):
        """Calls `between` while a stream is on its way. The stream must go on afterwards, and be what it is without."""
        arrived, failed = [], []

        def read():
            try:
                with self.stream() as response:
                    for text in pieces_of(response):
                        arrived.append((time.monotonic(), text))
            except (OSError, Trouble, ValueError) as error:
                failed.append(error)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        while len(arrived) < 5 and reader.is_alive() and self.left() > 1:
            time.sleep(0.002)
        between()
        back = time.monotonic()
        reader.join(max(1, self.left()))
        if failed or reader.is_alive():
            raise Trouble(f"the stream does not end: {failed[0] if failed else 'nothing more comes'}")
        later = sum(1 for when, _ in arrived if when > back)
        if later < 5:
            raise Trouble(f"the stream was over before: {len(arrived) - later} of {len(arrived)} pieces had come")
        if "".join(text for _, text in arrived) != self.streamed:
            raise Trouble("the stream that was on its way went on otherwise than without a checkpoint")
        return later

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        return self.wait()
