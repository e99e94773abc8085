// Locks in etcd: waiting, cancelling, a blocked event loop and the end of a process, as on Redis.
const assert = require('node:assert/strict')
const { spawn } = require('node:child_process')
const { join } = require('node:path')
const test = require('node:test')
const { Client } = require('onelock')
const { block } = require('./support/clients.cjs')
const programs = require('./support/programs.cjs')
const { until } = require('./support/server.cjs')

const script = join(__dirname, '..', '..', 'tools', 'with-etcd.sh')
let server
let url = ''
const clients = []
let names = 0
const fresh = () => `name-${++names}`

/** A client that is closed at the end. */
function connect(options) {
  const client = new Client(url, options)
  clients.push(client)
  return client
}

test.before(async () => {
  // without input it ends
  server = spawn(script, ['sh', '-c', 'echo $ONELOCK_URL; exec cat'], { stdio: ['pipe', 'pipe', 'inherit'] })
  server.stdout.setEncoding('utf8').on('data', (text) => (url += text))
  await until(() => url.endsWith('\n'))
  url = url.trim()
})

test.after(async () => {
  await Promise.all(clients.map((client) => client.close()))
  const ended = new Promise((resolve) => server.once('exit', resolve))
  server.stdin.end()
  await ended
})

test('who waits is woken, and who gives up leaves nothing', async () => {
  const [client, other, name] = [connect(), connect(), fresh()]
  const lease = await other.lock(name).acquire()
  const controller = new AbortController()
  const reason = new Error('enough')
  const givesUp = client.lock(name).acquire({ signal: controller.signal })
  const waits = client.lock(name).acquire()
  await until(() => client.stats().waiting === 2)
  controller.abort(reason)
  await assert.rejects(givesUp, (error) => error === reason)
  assert.equal(await lease.release(), 'released')
  const mine = await waits
  assert.ok(mine.held && mine.fencingToken > lease.fencingToken)
  assert.equal(await mine.release(), 'released')
  assert.equal(await other.inspect(name), null)
})

test('a blocked event loop loses no lease', async () => {
  const [client, name] = [connect(), fresh()]
  const lease = await client.lock(name, { ttl: 2_000 }).acquire()
  block(5_000)
  assert.ok(lease.held)
  assert.equal(await lease.release(), 'released')
})

test('the end of a process releases', async () => {
  const client = connect()
  for (const [end, code] of [
    ['', 0],
    ['process.exit(7)', 7],
    ["throw new Error('of the program')", 1],
  ]) {
    const name = fresh()
    const ended = await programs.run(
      url,
      `new Client(url).lock('${name}', { ttl: 3_600_000 }).acquire().then((lease) => { globalThis.lease = lease; ${end} })`,
    )
    assert.equal(ended.code, code, ended.err)
    assert.equal(await client.inspect(name), null)
  }
})
