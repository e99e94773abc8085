// What prom-client reads of a client.
const assert = require('node:assert/strict')
const { test } = require('node:test')
const { Registry } = require('prom-client')
const { Client } = require('onelock')
const { registerStats } = require('onelock/prometheus')

/** Every sample of a scrape by its name and labels. */
async function scraped(registry) {
  const lines = (await registry.metrics()).split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  return new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
  )
}

test('a scrape tells what the client did', async () => {
  const client = new Client('memory://')
  const registry = new Registry()
  registerStats(client, registry)
  assert.equal((await scraped(registry)).get('onelock_acquired_total'), 0)
  const lease = await client.lock('a').acquire()
  assert.equal(await client.lock('a').tryAcquire(), null)
  const waiter = client.lock('a').acquire({ timeout: 10_000 })
  while (client.stats().waiting === 0) await new Promise(setImmediate)
  const during = await scraped(registry)
  assert.deepEqual(
    ['onelock_held', 'onelock_waiting', 'onelock_busy_total'].map((name) => during.get(name)),
    [1, 1, 1],
  )
  await lease.release()
  await (await waiter).release()
  const after = await scraped(registry)
  assert.deepEqual(
    ['onelock_held', 'onelock_acquired_total', 'onelock_released_total'].map((name) => after.get(name)),
    [0, 2, 2],
  )
  for (const name of ['wait', 'hold']) {
    assert.equal(after.get(`onelock_${name}_seconds_count`), 2)
    assert.equal(after.get(`onelock_${name}_seconds_sum`), client.stats()[name].sum / 1000)
  }
  await client.close()
})

test('times are histograms, with the buckets that the package for Python has', async () => {
  const client = new Client('memory://')
  const registry = new Registry()
  registerStats(client, registry)
  for (let turn = 0; turn < 5; turn += 1) {
    const lease = await client.lock('a').acquire()
    await new Promise((resolve) => setTimeout(resolve, turn === 0 ? 20 : 0))
    await lease.release()
  }
  assert.match(await registry.metrics(), /# TYPE onelock_wait_seconds histogram\n/)
  const samples = await scraped(registry)
  for (const name of ['wait', 'hold']) {
    const { buckets, count, p99 } = client.stats()[name]
    assert.equal(buckets.length, 32)
    assert.equal(count, 5)
    assert.equal(
      buckets.reduce((sum, one) => sum + one),
      5,
    )
    const found = [...samples].filter(([sample]) => sample.startsWith(`onelock_${name}_seconds_bucket{`))
    const bounds = found.map(([sample]) => /\{le="(.*)"\}$/.exec(sample)[1])
    assert.deepEqual(
      bounds.slice(0, -1).map(Number),
      [...Array(31).keys()].map((power) => 2 ** power / 1e6),
    )
    assert.equal(bounds.at(-1), '+Inf')
    const numbers = found.map(([, value]) => value)
    assert.ok(numbers.every((value, at) => at === 0 || value >= numbers[at - 1]))
    assert.equal(numbers.at(-1), 5)
    // the bound of the 99th percentile is the first below which all are
    assert.ok(Math.abs(Number(bounds[numbers.indexOf(5)]) * 1000 - p99) < p99 / 1e9)
  }
  const short = samples.get('onelock_hold_seconds_bucket{le="0.016384"}')
  assert.ok(short <= 4, 'one was held for 20 ms')
  await client.close()
})

test('every number of the stats is a metric, with its labels', async () => {
  const client = new Client('memory://')
  const registry = new Registry()
  registerStats(client, registry, { prefix: 'locks', labels: { server: 'main' } })
  const text = await registry.metrics()
  const fields = Object.keys(client.stats())
  assert.ok(fields.length > 12)
  for (const field of fields) {
    const name = `locks_${field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)}`
    assert.ok(
      ['{', '_total{', '_seconds_count{'].some((end) => text.includes(`\n${name}${end}`)),
      name,
    )
  }
  for (const sample of (await scraped(registry)).keys()) assert.match(sample, /server="main"/)
  // both of the formats that Prometheus asks for
  assert.match(text, /# TYPE locks_acquired_total counter/)
  assert.throws(() => registerStats(client, registry, { prefix: 'locks' }), /already been registered/)
  await client.close()
})
