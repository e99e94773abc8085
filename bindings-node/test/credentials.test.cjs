// A function gives the credentials of each new connection.
const assert = require('node:assert/strict')
const { once } = require('node:events')
const { join } = require('node:path')
const test = require('node:test')
const { Worker } = require('node:worker_threads')
const Redis = require('ioredis')
const { Client, InvalidArgumentError, ServerUnavailableError } = require('onelock')
const { default: Redlock } = require('onelock/redlock')
const programs = require('./support/programs.cjs')
const { forTests, start, until } = require('./support/server.cjs')

const at = forTests(test)
const open = []
test.after(() => Promise.all(open.map((client) => client.close())))

function made(credentials, options) {
  const client = new Client(at.server.url, { credentials, ...options })
  open.push(client)
  return client
}

async function rotate(password, server = at.server) {
  const word = await server.send('ACL', 'SETUSER', 'app', 'on', 'resetpass', `>${password}`, '~*', '&*', '+@all')
  assert.equal(word, 'OK')
  await server.send('CLIENT', 'KILL', 'USER', 'app')
}

/** Whether every connection but the test's own is the user's. */
async function allLoggedIn(server) {
  const list = await server.send('CLIENT', 'LIST', 'TYPE', 'normal')
  const ours = list.split('\n').filter((line) => / lib-name=onelock | user=app | cmd=NULL /.test(line))
  return ours.every((line) => line.includes(' user=app '))
}

for (const later of [false, true]) {
  test(`each connection asks anew${later ? ', and the answer may come later' : ''}`, async () => {
    const server = await start()
    let asked = 0
    let password = 'first'
    const given = () => {
      asked += 1
      const credentials = { username: 'app', password }
      return later ? new Promise((resolve) => setTimeout(resolve, 5, credentials)) : credentials
    }
    try {
      await rotate('first', server)
      const received = async () => {
        const info = await server.send('INFO', 'stats')
        return Number(/total_connections_received:(\d+)/.exec(info)[1])
      }
      const before = await received()
      const client = new Client(server.url, { credentials: given, ttl: 6_000 })
      assert.equal(asked, 0)
      const lease = await client.lock('held').acquire()
      // no connection has asked for its password and not yet used it
      const settled = async () => asked === (await received()) - before && (await allLoggedIn(server))
      for (const next of ['second', 'third']) {
        // both passwords are good while a connection may still have the old one: a refused one would be asked for twice
        await server.send('ACL', 'SETUSER', 'app', `>${next}`)
        password = next
        await until(settled, 'all connections to be made')
        const [askedBefore, { renewals }] = [asked, client.stats()]
        await rotate(next, server)
        await until(
          async () => {
            // a connection that was not yet the user's has been spared
            if (asked === askedBefore) await server.send('CLIENT', 'KILL', 'USER', 'app')
            return client.stats().renewals > renewals && asked > askedBefore
          },
          'a renewal with the new password',
          30_000,
        )
        await lease.extend(6_000)
        assert.ok(lease.held)
      }
      await lease.release()
      await until(settled, 'as many questions as connections')
      const list = await server.send('CLIENT', 'LIST')
      const users = [...list.matchAll(/ user=(\S+).* lib-name=onelock /g)].map(([, user]) => user)
      assert.deepEqual(new Set(users), new Set(['app']))
      const asOfNow = asked
      for (let round = 0; round < 20; round += 1) await client.lock('held').using(async () => {})
      assert.ok(asked <= asOfNow + 1, `asked ${asked - asOfNow} times with connections at hand`)
      await client.close()
    } finally {
      await server.kill()
    }
  })
}

test('a failure says why, and the next connection asks again', async () => {
  await rotate('first')
  const failures = [
    [() => { throw new Error('no token today') }, /the credentials provider failed: Error: no token today/], // biome-ignore format: a row
    [async () => Promise.reject(new Error('no token today')), /failed: Error: no token today/],
    [() => Promise.reject(undefined), /failed: undefined/],
    [() => ({ toString: null, password: 5 }), /must give/],
    [() => { throw Object.create(null) }, /without words/], // biome-ignore format: a row
    [() => undefined, /must give/],
    [() => ({ username: 5, password: 'hunter2' }), /must give/],
    [() => Buffer.from('hunter2'), /must give/],
  ]
  let give = () => 'unused'
  const client = made(() => give(), { connectTimeout: 2_000 })
  for (const [fails, why] of failures) {
    give = fails
    await assert.rejects(client.check(), (error) => {
      assert.ok(error instanceof ServerUnavailableError, String(error))
      assert.match(error.message, why)
      assert.ok(!error.message.includes('hunter2'))
      return true
    })
  }
  give = () => ({ username: 'app', password: 'hunter2' })
  await assert.rejects(client.check(), (error) => {
    assert.equal(error.code, 'ERR_ONELOCK_AUTH_FAILED')
    return !error.message.includes('hunter2')
  })
  give = () => {
    throw new Error('away')
  }
  setTimeout(() => {
    give = async () => ({ username: 'app', password: 'first' })
  }, 300)
  await client.lock('recovers').using({ timeout: 20_000 }, async () => {})
})

test('what can be given', async () => {
  // the default user of this server takes any password
  for (const given of [
    'x',
    { password: 'x' },
    { username: null, password: 'x' },
    { username: 'default', password: 'x' },
  ]) {
    await made(() => given).check()
  }
})

test('a function that never answers is bounded', async () => {
  await rotate('first')
  const client = made(() => new Promise(() => {}), { connectTimeout: 400, requestTimeout: 300 })
  const began = performance.now()
  await assert.rejects(client.lock('late').tryAcquire(), /the credentials provider did not answer in time/)
  assert.ok(performance.now() - began < 15_000)
})

test('credentials in the address as well, and what is no function, are refused', () => {
  const url = at.server.url.replace('redis://', 'redis://app:hunter2@')
  const refused = (make, why) =>
    assert.throws(make, (error) => {
      assert.ok(error instanceof InvalidArgumentError, String(error))
      assert.match(error.message, why)
      return !error.message.includes('hunter2')
    })
  refused(() => new Client(url, { credentials: () => 'x' }), /user name or password, and the option credentials/)
  refused(() => new Client(at.server.url, { credentials: 'hunter2' }), /credentials must be a function .* not string/)
  refused(() => new Client(at.server.url, { credentials: { password: 'hunter2' } }), /not object/)
})

test('onelock/redlock takes it in its settings', async () => {
  await rotate('first')
  let asked = 0
  const redis = new Redis(at.server.port, '127.0.0.1', { lazyConnect: true })
  const credentials = () => {
    asked += 1
    return { username: 'app', password: 'first' }
  }
  const redlock = new Redlock([redis], { client: { credentials, quarantine: 0 } })
  const lock = await redlock.acquire(['redlock:credentials'], 5_000)
  await lock.release()
  assert.ok(asked > 0)
  await redlock.quit()
  redis.disconnect()
})

test('asking keeps no process alive, and nothing is left unhandled', async () => {
  await rotate('first')
  const flags = ['--unhandled-rejections=strict', '--throw-deprecation']
  const source = (body) => `
    const credentials = async () => { ${body} }
    const client = new Client(url, { credentials, connectTimeout: 500, requestTimeout: 300 })
    client.lock('process').acquire({ timeout: 0 }).then(
      (lease) => lease.release().then(() => say('released')),
      (error) => say(error.code))`
  const ended = await programs.run(at.server.url, source("return { username: 'app', password: 'first' }"), { flags })
  assert.deepEqual([ended.code, ended.out, ended.err], [0, 'released\n', ''])
  const failed = await programs.run(at.server.url, source("throw new Error('no')"), { flags })
  assert.deepEqual([failed.code, failed.out, failed.err], [0, 'ERR_ONELOCK_UNAVAILABLE\n', ''])
  // it ends at once although a question is open
  const left = await programs.run(
    at.server.url,
    `new Client(url, { credentials: () => new Promise(() => {}), connectTimeout: 60_000 }).check().catch(() => {})
     setTimeout(() => process.exit(0), 200)`,
    { flags },
  )
  assert.deepEqual([left.code, left.err], [0, ''])
  assert.ok(left.took < 30_000, `${left.took} ms`)
})

test('a worker asks for itself, and may end while it is asked', async () => {
  await rotate('first')
  const root = JSON.stringify(join(__dirname, '..'))
  const worker = (body, credentials) =>
    new Worker(
      `const { parentPort } = require('node:worker_threads')
       const { Client } = require(${root})
       const client = new Client(${JSON.stringify(at.server.url)}, { credentials: ${credentials}, connectTimeout: 20_000 })
       ${body}`,
      { eval: true },
    )
  const good = worker(
    "client.lock('worker').using(async () => parentPort.postMessage('held'))",
    "() => ({ username: 'app', password: 'first' })",
  )
  const [told, ended] = [once(good, 'message'), once(good, 'exit')]
  assert.deepEqual(await told, ['held'])
  assert.deepEqual(await ended, [0])
  const stuck = worker(
    "client.lock('worker').acquire().catch(() => {})",
    "() => { parentPort.postMessage('asked'); return new Promise(() => {}) }",
  )
  await once(stuck, 'message')
  const began = performance.now()
  await stuck.terminate()
  assert.ok(performance.now() - began < 15_000)
})

test('a function is let go of with the last client that asks it', async () => {
  const source = `
    const gone = []
    const registry = new FinalizationRegistry((word) => gone.push(word))
    async function use() {
      const credentials = () => 'x'
      registry.register(credentials, 'function')
      const client = new Client(url, { credentials })
      await client.check()
      await client.close()
    }
    async function main() {
      await use()
      for (let round = 0; round < 200 && gone.length === 0; round += 1) {
        gc()
        await pause(10)
      }
      say(gone.join())
    }
    main()`
  const ended = await programs.run(at.server.url, source, { flags: ['--expose-gc'] })
  assert.deepEqual([ended.code, ended.out, ended.err], [0, 'function\n', ''])
})
