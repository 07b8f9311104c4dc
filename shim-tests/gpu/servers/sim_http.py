"""An HTTP server for dry runs on the simulated driver, asked like an OpenAI-style one: sim_http.py SIMAPP MIB PORT

Each piece of an answer says what SIMAPP, a process below it, finds in its device memory.
"""

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

WORKER = subprocess.Popen(sys.argv[1:3], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def piece(number, seed):
    WORKER.stdin.write("sum\n")
    return f"w{number}.{seed}.{WORKER.stdout.readline().strip().replace(' ', '')} "


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_words):
        pass

    def begin(self, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def do_GET(self):
        self.begin("application/json")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        pieces = (piece(number, body.get("seed", 0)) for number in range(body["max_tokens"]))
        if not body.get("stream"):
            self.begin("application/json")
            self.wfile.write(json.dumps({"choices": [{"text": "".join(pieces)}]}).encode())
            return
        self.begin("text/event-stream")
        for text in pieces:
            self.wfile.write(f"data: {json.dumps({'choices': [{'delta': {'content': text}}]})}\n\n".encode())
            self.wfile.flush()


def main():
    WORKER.stdout.readline()
    try:
        HTTPServer(("127.0.0.1", int(sys.argv[3])), Handler).serve_forever()
    except KeyboardInterrupt:
        WORKER.stdin.close()
        WORKER.wait(60)


main()
