// openai-node. Run in the folder whose node_modules holds it; the protocol is that of protocol.py.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const require = createRequire(`${process.cwd()}/`);
const { OpenAI } = await import(pathToFileURL(require.resolve('openai')));

const verbs = {
  async chat(client, params, seen) {
    seen.push(await client.chat.completions.create(params));
  },
  async chat_stream(client, params, seen) {
    for await (const chunk of await client.chat.completions.create({ ...params, stream: true })) seen.push(chunk);
  },
  async chat_helper(client, params, seen) {
    const stream = client.chat.completions.stream(params);
    for await (const _ of stream);
    seen.push(await stream.finalChatCompletion());
  },
  async completion(client, params, seen) {
    seen.push(await client.completions.create(params));
  },
  async completion_stream(client, params, seen) {
    for await (const chunk of await client.completions.create({ ...params, stream: true })) seen.push(chunk);
  },
  async models(client, params, seen) {
    for await (const model of client.models.list()) seen.push(model);
  },
  async model(client, params, seen) {
    seen.push(await client.models.retrieve(params.model));
  },
};

function described(error) {
  const classes = [];
  for (let kind = error.constructor; kind?.name; kind = Object.getPrototypeOf(kind)) classes.push(kind.name);
  const { status: status_code, code, param, type, requestID: request_id, message, stack: trace } = error;
  return { classes, status_code, code, param, type, request_id, message, trace };
}

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  const client = new OpenAI({ baseURL: asked.url, apiKey: asked.key, maxRetries: asked.retries });
  const seen = [];
  let raised = null;
  const started = performance.now();
  try {
    await verbs[asked.verb](client, asked.params, seen);
  } catch (error) {
    raised = described(error);
  }
  console.log(JSON.stringify({ seen, raised, took_s: (performance.now() - started) / 1000 }));
}
