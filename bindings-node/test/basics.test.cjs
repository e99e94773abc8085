// What every program does: acquire, try, wait, extend, release, look; names, options, kinds.
const assert = require('node:assert/strict')
const test = require('node:test')
const onelock = require('onelock')
const { forTests, until, FLAVOURS, start } = require('./support/server.cjs')

const { Client } = onelock
const at = forTests(test)
const clients = []
test.after(() => Promise.all(clients.map((client) => client.close())))

async function connect(options) {
  const client = await Client.connect(at.server.url, options)
  clients.push(client)
  return client
}

let names = 0
const fresh = () => `name-${process.pid}-${++names}`

test('a lock is held by one at a time, and released', async () => {
  const client = await connect()
  const other = await connect()
  const name = fresh()
  const lease = await client.lock(name).acquire()
  assert.equal(lease.held, true)
  assert.equal(lease.name, name)
  assert.equal(lease.kind, 'lock')
  assert.equal(lease.holdCount, 1)
  assert.equal(lease.loss, null)
  assert.equal(lease.fencingGrade, 'ClockBounded')
  assert.ok(Number.isSafeInteger(lease.fencingToken))
  assert.equal(JSON.parse(JSON.stringify({ fence: lease.fencingToken })).fence, lease.fencingToken)
  assert.ok(lease.remaining > 29_000 && lease.remaining <= 30_000)
  assert.equal(await other.lock(name).tryAcquire(), null)
  assert.equal(await other.lock(name).isLocked(), true)
  assert.match(await at.server.send('GET', name), /^onelock1:[0-9a-f]{32}$/)
  assert.equal(await lease.release(), 'released')
  assert.equal(await lease.release(), 'already_released')
  assert.equal(lease.held, false)
  assert.equal(lease.remaining, 0)
  assert.equal(lease.holdCount, 0)
  assert.equal(lease.loss, null)
  assert.equal(await other.lock(name).isLocked(), false)
  const next = await other.lock(name).tryAcquire()
  assert.ok(next.fencingToken > lease.fencingToken)
  await next.release()
})

test('waiting ends with the release, or with the timeout', async () => {
  const client = await connect()
  const other = await connect()
  const lock = client.lock(fresh())
  const lease = await lock.acquire()
  await assert.rejects(other.lock(lock.name).acquire({ timeout: 30 }), onelock.LockTimeoutError)
  await assert.rejects(other.lock(lock.name).acquire({ timeout: 0 }), onelock.LockBusyError)
  const waiting = other.lock(lock.name).acquire({ timeout: Infinity })
  await until(() => other.stats().waiting === 1)
  await lease.release()
  await (await waiting).release()
})

test('extend sets a longer end, and fails on what is not held', async () => {
  const client = await connect()
  const lease = await client.lock(fresh(), { ttl: 5000, autoRenew: false }).acquire()
  await lease.extend(60_000)
  assert.ok(lease.remaining > 50_000)
  await lease.extend(1000)
  assert.ok(lease.remaining > 50_000, 'never shorter')
  await lease.release()
  await assert.rejects(lease.extend(1000), onelock.LockNotHeldError)
})

test('inspection, force and statistics', async () => {
  const client = await connect({ inspectable: true, label: 'tests', prefix: 'p:' })
  const name = fresh()
  assert.equal(await client.inspect(name), null)
  const lease = await client.lock(name).acquire()
  const seen = await client.inspect(name)
  assert.equal(seen.kind, 'lock')
  assert.equal(seen.owner.label, 'tests')
  assert.equal(seen.owner.pid, process.pid)
  assert.ok(Math.abs(seen.owner.since.getTime() - Date.now()) < 60_000)
  assert.equal(seen.fencingToken, lease.fencingToken)
  assert.ok(seen.ttlLeft > 20_000)
  assert.equal(await at.server.send('EXISTS', `p:${name}`), 1)
  assert.equal(client.stats().held, 1)
  assert.equal(await client.forceRelease(name), true)
  assert.equal(await client.forceRelease(name), false)
  assert.equal(await lease.release(), 'already_expired')
  const stats = client.stats()
  assert.equal(stats.acquired, 1)
  assert.equal(stats.wait.count, 1)
  assert.ok(stats.wait.p50 > 0)
})

test('a look at the server, step by step', async () => {
  const client = await connect()
  const { severity, grade, findings } = await client.diagnose('x')
  assert.ok(['remark', 'warning'].includes(severity), JSON.stringify(findings))
  assert.notEqual(grade, 'None')
  const steps = new Map(findings.map((finding) => [finding.step, finding]))
  assert.deepEqual([steps.get('tcp').severity, steps.get('tcp').error], ['passed', null])
  assert.ok(steps.get('round trip').measured.median_us > 0)
  assert.match(steps.get('persistence').todo, /appendonly/)
  const away = await new Client('redis://127.0.0.1:1').diagnose()
  assert.equal(away.severity, 'failed')
  assert.equal(away.findings.at(-1).error, 'ERR_ONELOCK_UNAVAILABLE')
  await assert.rejects(client.diagnose(7), onelock.InvalidArgumentError)
  await client.close()
  await assert.rejects(client.diagnose(), onelock.ClientClosedError)
})

test('a foreign key without an end, and one that is no lock', async () => {
  const client = await connect()
  const name = fresh()
  await at.server.send('SET', name, 'somebody')
  const seen = await client.inspect(name)
  const expected = {
    kind: 'lock',
    origin: 'other',
    owner: null,
    foreignHolder: null,
    holdCount: 1,
    ttlLeft: null,
    fencingToken: null,
    permits: null,
    free: null,
    waiting: 0,
    waiters: [],
  }
  assert.deepEqual({ ...seen }, expected)
  await at.server.send('DEL', name)
  await at.server.send('RPUSH', name, 'x')
  await assert.rejects(client.lock(name).acquire(), onelock.WrongKindError)
  await at.server.send('DEL', name)
})

test('names are any bytes, and a string means its UTF-8 bytes', async () => {
  const client = await connect()
  const text = `${fresh()}-é`
  const lease = await client.lock(text).acquire()
  assert.equal(await client.lock(Buffer.from(text)).tryAcquire(), null)
  await lease.release()
  const bytes = Uint8Array.of(0, 255, 128, 10, 34)
  const binary = await client.lock(bytes).acquire()
  bytes[0] = 7
  assert.equal(await client.lock(Uint8Array.of(0, 255, 128, 10, 34)).tryAcquire(), null)
  assert.deepEqual(binary.name, Uint8Array.of(0, 255, 128, 10, 34))
  await binary.release()
})

test('a lease is handed to another client', async () => {
  const client = await connect()
  const other = await connect()
  const lock = client.lock(fresh())
  const lease = await lock.acquire()
  const proof = lease.detach()
  assert.equal(lease.held, false)
  assert.equal(await lease.release(), 'already_released')
  assert.throws(() => lease.detach(), onelock.LockNotHeldError)
  const adopted = await other.lock(lock.name).attach(proof)
  assert.equal(adopted.held, true)
  assert.equal(adopted.fencingToken, lease.fencingToken)
  // a queue delivers it a second time
  await assert.rejects(other.lock(lock.name).attach(proof), onelock.LockLostError)
  await assert.rejects(client.lock(lock.name).attach(proof), onelock.LockLostError)
  await adopted.extend(20_000)
  assert.equal(adopted.held, true)
  const next = adopted.detach()
  assert.notEqual(next, proof)
  await assert.rejects(client.lock(lock.name).attach(proof), onelock.LockLostError)
  assert.equal(await (await client.lock(lock.name).attach(next)).release(), 'released')
  await assert.rejects(other.lock(lock.name).attach(proof), onelock.LockLostError)
  await assert.rejects(other.lock(lock.name).attach('nonsense'), onelock.InvalidArgumentError)
  await assert.rejects(other.lock(lock.name).attach(7), onelock.InvalidArgumentError)
})

test('without fencing there is no token', async () => {
  const client = await connect({ fencing: false })
  const lease = await client.lock(fresh()).acquire()
  assert.equal(lease.fencingToken, null)
  assert.equal(lease.fencingGrade, 'None')
  await lease.release()
})

test('a closed client says so, and released everything', async () => {
  const client = await connect()
  const other = await connect()
  const lock = client.lock(fresh())
  const lease = await lock.acquire()
  const waiting = client.lock(lock.name).acquire()
  waiting.catch(() => {})
  await until(() => client.stats().waiting === 1)
  await Promise.all([client.close(), client.close()])
  await assert.rejects(waiting, onelock.ClientClosedError)
  await assert.rejects(lock.acquire(), onelock.ClientClosedError)
  await assert.rejects(client.inspect('x'), onelock.ClientClosedError)
  assert.equal(lease.held, false)
  await lease.release()
  assert.equal(await other.lock(lock.name).isLocked(), false)
})

test('the address comes from the environment, and a missing server is told', async () => {
  process.env.ONELOCK_URL = at.server.url
  const client = new Client({ ttl: 1000 })
  delete process.env.ONELOCK_URL
  const lease = await client.lock(fresh()).acquire()
  assert.ok(lease.remaining <= 1000)
  await lease.release()
  await client.close()
  assert.throws(() => new Client(), /ONELOCK_URL/)
  const gone = await start()
  await gone.kill()
  await assert.rejects(Client.connect(gone.url), (error) => {
    assert.ok(error instanceof onelock.ServerUnavailableError)
    assert.equal(error.code, 'ERR_ONELOCK_UNAVAILABLE')
    assert.equal(error.retryable, true)
    return true
  })
})

test('await using, as compilers write it', async () => {
  const client = await connect()
  const lock = client.lock(fresh())
  const lease = await lock.acquire()
  await lease[Symbol.asyncDispose]()
  assert.equal(lease.held, false)
  await lease[Symbol.asyncDispose]()
  const short = await Client.connect('memory://')
  await short[Symbol.asyncDispose]()
  await assert.rejects(short.check(), onelock.ClientClosedError)
})

test('the gate beside a resource', () => {
  const gate = new onelock.FenceGate()
  assert.equal(gate.admit(5), true)
  assert.equal(gate.admit(5), true)
  assert.equal(gate.admit(4), false)
  assert.equal(gate.highest, 5)
  assert.equal(new onelock.FenceGate(9).admit(8), false)
  assert.throws(() => gate.admit(5n), /not a bigint; use Number/)
  assert.throws(() => gate.admit('5'), /not a string; use Number/)
  assert.throws(() => gate.admit(2 ** 53), onelock.InvalidArgumentError)
  assert.match(onelock.FENCE_GUARD_SCRIPT, /redis\.call/)
})

test('every option is taken', async () => {
  const client = await Client.connect(at.server.url, {
    ttl: 10_000,
    autoRenew: true,
    minHold: 0,
    maxHold: 60_000,
    lockDelay: 5,
    minValidity: 5,
    fencing: true,
    prefix: Uint8Array.of(112, 58),
    driftFactor: 0.02,
    minFencingGrade: 'BestEffort',
    connectTimeout: 1000,
    requestTimeout: 1000,
    closeTimeout: 1000,
    unreachableLimit: 1000,
    label: 'all',
    inspectable: true,
    acceptedWarnings: 'persistence',
    minReplicas: 0,
    replicaTimeout: 100,
    notify: 'classic',
    sentinelUsername: 'u',
    sentinelPassword: 'p',
    sentinelTls: false,
    tlsInsecure: false,
  })
  const lease = await client.lock('every').acquire()
  assert.equal(await at.server.send('EXISTS', 'p:every'), 1)
  assert.ok(lease.remaining < 10_000)
  await lease.release()
  await client.close()
})

for (const flavour of FLAVOURS) {
  test(`a whole cycle on ${flavour}`, async () => {
    const server = await start(flavour)
    try {
      const client = await Client.connect(server.url)
      const lease = await client.lock('x').acquire()
      const waiting = client.lock('x').acquire()
      await until(() => client.stats().waiting === 1)
      await lease.release()
      await (await waiting).release()
      await client.close()
    } finally {
      await server.kill()
    }
  })
}
