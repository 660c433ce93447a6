// The Node.js clients: `clients.mjs NAME`, with a list of `[url, key]` in JSON as its input. See clients.py.

import { readFileSync } from "node:fs";

const header = "x-api-key";

const clients = {
  async fetch(url, key) {
    for (let i = 0; i < 3; i++) await (await fetch(url, { headers: { [header]: key } })).text();
  },

  async undici(url, key) {
    const { Agent, RetryAgent, request } = await import("undici");
    const dispatcher = new RetryAgent(new Agent());
    for (let i = 0; i < 3; i++) {
      await (await request(url, { dispatcher, headers: { [header]: key } })).body.text();
    }
  },

  async got(url, key) {
    const { default: got } = await import("got");
    for (let i = 0; i < 3; i++) await got(url, { headers: { [header]: key } });
  },

  async ky(url, key) {
    const { default: ky } = await import("ky");
    for (let i = 0; i < 3; i++) await ky(url, { headers: { [header]: key } });
  },

  async axios(url, key) {
    const { default: axios } = await import("axios");
    for (let i = 0; i < 3; i++) await axios.get(url, { headers: { [header]: key } });
  },

  async "axios-retry"(url, key) {
    const { default: axios } = await import("axios");
    const { default: axiosRetry } = await import("axios-retry");
    const client = axios.create({ headers: { [header]: key } });
    axiosRetry(client);
    for (let i = 0; i < 3; i++) await client.get(url);
  },

  async "retry-axios"(url, key) {
    const { default: axios } = await import("axios");
    const { attach } = await import("retry-axios");
    const client = axios.create({ headers: { [header]: key } });
    attach(client);
    for (let i = 0; i < 3; i++) await client.get(url);
  },

  async superagent(url, key) {
    const { default: superagent } = await import("superagent");
    for (let i = 0; i < 3; i++) await superagent.get(url).set(header, key).retry(3);
  },

  async ofetch(url, key) {
    const { ofetch } = await import("ofetch");
    for (let i = 0; i < 3; i++) await ofetch(url, { headers: { [header]: key } });
  },

  async openai(url, key) {
    const { default: OpenAI, NotFoundError } = await import("openai");
    const client = new OpenAI({ apiKey: "none", baseURL: url, maxRetries: 3, defaultHeaders: { [header]: key } });
    for (let i = 0; i < 3; i++) {
      try {
        await client.models.list();
      } catch (error) {
        // Admitted: the server has no such route.
        if (!(error instanceof NotFoundError)) throw error;
      }
    }
  },

  async "plugin-throttling"(url, key) {
    const { Octokit } = await import("@octokit/core");
    const { throttling } = await import("@octokit/plugin-throttling");
    const again = (after, options, octokit, retries) => retries < 3;
    const client = new (Octokit.plugin(throttling))({
      baseUrl: url.replace(/\/$/, ""),
      throttle: { onRateLimit: again, onSecondaryRateLimit: again },
      log: { debug() {}, info() {}, warn() {}, error() {} },
    });
    for (let i = 0; i < 3; i++) await client.request("GET /", { headers: { [header]: key } });
  },

  // Returns what it reads from the third response.
  async "ratelimit-header-parser"(url, key) {
    const { parseRateLimit } = await import("ratelimit-header-parser");
    let response;
    for (let i = 0; i < 3; i++) response = await fetch(url, { headers: { [header]: key } });
    const read = parseRateLimit(response) ?? null;
    if (read === null) return null;
    const { limit, remaining, reset } = read;
    return [limit, remaining, (reset - Date.now()) / 1000];
  },

  // Returns the status of the third call, and the seconds that it took.
  async "@grpc/grpc-js"(target, policy) {
    const grpc = await import("@grpc/grpc-js");
    const options = policy ? { "grpc.service_config": JSON.stringify(policy) } : {};
    const client = new grpc.Client(target, grpc.credentials.createInsecure(), options);
    const bytes = (value) => value;
    const sayHello = () =>
      new Promise((resolve) =>
        client.makeUnaryRequest("/greeter.Greeter/SayHello", bytes, bytes, Buffer.alloc(0), (error) =>
          resolve(error ? grpc.status[error.code] : "OK"),
        ),
      );
    await sayHello();
    await sayHello();
    const start = performance.now();
    const code = await sayHello();
    client.close();
    return [code, (performance.now() - start) / 1000];
  },
};

const runs = JSON.parse(readFileSync(0, "utf8"));
// A client that gave up is no error: what it did until then was seen.
const attempt = (run) => clients[process.argv[2]](...run).catch(String);
console.log(JSON.stringify(await Promise.all(runs.map(attempt))));
process.exit();
