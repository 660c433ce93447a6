// The rules, compiled to WebAssembly.

const module = await WebAssembly.compile(Uint8Array.from(atob(WASM), (byte) => byte.charCodeAt(0)));
const rules = (await WebAssembly.instantiate(module)).exports;

// Returns the report on requests that arrive at these milliseconds: see `src/json.rs`.
function decide(rule, arrivals, widthMs, columns) {
  const text = new TextEncoder().encode(rule);
  write(Uint8Array, rules.rule_buffer(text.length), text);
  write(Uint32Array, rules.arrivals_buffer(arrivals.length), arrivals);
  const length = rules.simulate(widthMs, columns);
  const report = new Uint8Array(rules.memory.buffer, rules.report(), length);
  return JSON.parse(new TextDecoder().decode(report));
}

// The memory is looked up after the call that returned the address, which may have replaced it.
function write(Type, address, values) {
  new Type(rules.memory.buffer, address, values.length).set(values);
}
