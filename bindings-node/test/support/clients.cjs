// Clients for the tests of one file: closed at its end. Names that nobody else uses.
const { Client } = require('onelock')
const { forTests } = require('./server.cjs')

function setUp(test) {
  const at = forTests(test)
  const clients = []
  let names = 0
  test.after(() => Promise.all(clients.map((client) => client.close())))
  return {
    at,
    fresh: () => `name-${process.pid}-${++names}`,
    connect(options) {
      const client = new Client(at.server.url, options)
      clients.push(client)
      return client
    },
  }
}

/** Keeps the event loop from running for so long. */
function block(ms) {
  const end = performance.now() + ms
  while (performance.now() < end);
}

/** Collects what is warned of while `act` runs. */
async function warnings(act) {
  const seen = []
  const hear = (warning) => seen.push(warning)
  process.on('warning', hear)
  try {
    await act(seen)
  } finally {
    process.off('warning', hear)
  }
  return seen
}

module.exports = { block, setUp, warnings }
