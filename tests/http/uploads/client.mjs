// Sends uploads one after the other, and prints a line for each: the status and the body, or the error.
//
// node client.mjs HOST:PORT COUNT BYTES

const [address, count, size] = process.argv.slice(2);
const body = new Uint8Array(Number(size));
for (let sent = 0; sent < Number(count); sent++) {
  try {
    const response = await fetch(`http://${address}/`, {
      method: "POST",
      body,
      signal: AbortSignal.timeout(30_000),
    });
    console.log(response.status, await response.text());
  } catch (error) {
    console.log("lost", String(error.cause ?? error));
  }
}
