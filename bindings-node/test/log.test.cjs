// What the library has to say.
const assert = require('node:assert/strict')
const { once } = require('node:events')
const test = require('node:test')
const { InvalidArgumentError, setLogger } = require('onelock')
const { setUp, warnings } = require('./support/clients.cjs')
const programs = require('./support/programs.cjs')
const { until } = require('./support/server.cjs')

const { at, connect, fresh } = setUp(test)
test.afterEach(() => setLogger(null))

async function lose() {
  const lease = await connect().lock(fresh(), { renewEvery: 20 }).acquire()
  await at.server.send('DEL', lease.name)
  await once(lease, 'lost')
  await lease.release()
  return lease.name
}

test('a logger is told of losses, and of everything at a higher level', async () => {
  const lines = []
  setLogger((level, message) => lines.push({ level, message }))
  const name = await lose()
  const told = () => lines.find(({ message }) => message.startsWith('lock lost: the server no longer knows it'))
  await until(told, 'a line')
  assert.equal(told().level, 'warn')
  assert.ok(told().message.includes(name))
  assert.ok(lines.every(({ level }) => level === 'warn'))
  setLogger((level, message) => lines.push({ level, message }), 'debug')
  const other = await lose()
  await until(() => lines.some(({ level, message }) => level === 'debug' && message.startsWith('lock acquired')))
  assert.ok(lines.some(({ message }) => message.includes(other)))
  setLogger(null)
  const count = lines.length
  await lose()
  assert.equal(lines.length, count)
})

test('what a logger throws is a warning', async () => {
  setLogger(() => {
    throw new Error('of the test')
  })
  const seen = await warnings(async (warned) => {
    await lose()
    await until(() => warned.length > 0, 'a warning')
  })
  assert.equal(seen[0].code, 'ONELOCK_LOGGER_THREW')
  assert.match(seen[0].message, /of the test/)
})

test('arguments', () => {
  assert.throws(() => setLogger(5), InvalidArgumentError)
  assert.throws(() => setLogger(() => {}, 'loud'), /the level must be one of error, warn/)
})

test('NODE_DEBUG', async () => {
  process.env.NODE_DEBUG = 'onelock'
  const ended = await programs.run(
    at.server.url,
    `
    const client = new Client(url)
    client.lock('${fresh()}').acquire().then(async (lease) => { await lease.release(); await client.close() })`,
  )
  delete process.env.NODE_DEBUG
  assert.equal(ended.code, 0)
  assert.match(ended.err, /ONELOCK \d+: debug lock acquired/)
})
