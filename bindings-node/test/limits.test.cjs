// A machine that has no more threads or file descriptors: an error of its own kind, nothing aborts, and it works again later.
const assert = require('node:assert/strict')
const { execFileSync } = require('node:child_process')
const { mkdtempSync, rmSync } = require('node:fs')
const { tmpdir } = require('node:os')
const { join } = require('node:path')
const test = require('node:test')
const programs = require('./support/programs.cjs')
const { forTests } = require('./support/server.cjs')

const at = forTests(test)
const folder = mkdtempSync(join(tmpdir(), 'onelock-node-'))
const preloaded = join(folder, 'without-threads.so')
test.before(() => {
  const source = join(__dirname, 'support', 'without-threads.c')
  execFileSync('cc', ['-Wall', '-Werror', '-shared', '-fPIC', '-o', preloaded, source, '-ldl'], { stdio: 'inherit' })
})
test.after(() => rmSync(folder, { recursive: true }))

const PROGRAM = `
  const { openSync, closeSync } = require('node:fs')
  const threads = (allowed) => {
    if (allowed) delete process.env.ONELOCK_TEST_NO_THREADS
    else process.env.ONELOCK_TEST_NO_THREADS = '1'
  }
  const taken = []
  /** Takes all file descriptors, or closes them. */
  const descriptors = (allowed) => {
    if (allowed) for (const fd of taken.splice(0)) closeSync(fd)
    else try { for (;;) taken.push(openSync('/dev/null')) } catch (error) { if (error.code !== 'EMFILE') throw error }
  }
  const tell = (error) => say([error.code, error.retryable, error instanceof require(root).OnelockError].join())
  const cycle = async (client) => say(await (await client.lock('x').acquire({ timeout: 5000 })).release())
`

/** Runs a program to its end, which must be a good one, under these limits. */
async function well(source) {
  const root = `const root = ${JSON.stringify(join(__dirname, '..'))}`
  const env = { LD_PRELOAD: preloaded }
  // a limit that is soon reached
  const command = ['prlimit', '--nofile=256:256']
  const { code, signal, out, err } = await programs.run(at.server.url, `${root}\n${PROGRAM}\n${source}`, {
    env,
    command,
    limit: 60_000,
  })
  assert.deepEqual([code, signal], [0, null], out + err)
  return out.trim().split('\n')
}

const LIMIT = 'ERR_ONELOCK_SYSTEM_LIMIT,true,true'

for (const what of ['threads', 'descriptors']) {
  test(`no ${what} at the first call`, async () => {
    const out = await well(`
      const client = new Client(url)
      const main = async () => {
        ${what}(false)
        await client.lock('x').acquire().catch(tell)
        await client.lock('x').tryAcquire({ signal: new AbortController().signal }).catch(tell)
        await client.lock('x').using(() => say('inside')).catch(tell)
        await client.check().catch(tell)
        await client.inspect('x').catch(tell)
        await client.close().catch(tell)
        ${what}(true)
        const later = new Client(url)
        await cycle(later)
      }
      main()`)
    assert.deepEqual(out, [...Array(6).fill(LIMIT), 'released'])
  })

  test(`no ${what}, and nothing else to do: the process ends`, async () => {
    const out = await well(`
      ${what}(false)
      new Client(url).lock('x').acquire().catch(tell)`)
    assert.deepEqual(out, [LIMIT])
  })
}

test('no descriptors for a connection', async () => {
  const out = await well(`
    const main = async () => {
      await cycle(new Client('memory://'))
      const client = new Client(url)
      descriptors(false)
      await client.lock('x').acquire({ timeout: 300 }).catch(tell)
      await client.lock('x').tryAcquire().catch(tell)
      descriptors(true)
      await cycle(client)
      await client.close()
    }
    main()`)
  assert.deepEqual(out, ['released', LIMIT, LIMIT, 'released'])
})

test('no threads while a lock is held and another one is waited for', async () => {
  const out = await well(`
    const main = async () => {
      const client = new Client(url)
      const lease = await client.lock('x').acquire()
      threads(false)
      const waiting = client.lock('x').acquire()
      // a name has to be looked up on a thread
      const other = new Client(url.replace('127.0.0.1', 'localhost'), { connectTimeout: 500 })
      await other.lock('y').acquire({ timeout: 300 }).then((lease) => lease.release(), (error) => {
        if (!error.retryable) tell(error)
      })
      say(lease.held)
      say(await lease.release())
      say(await (await waiting).release())
      threads(true)
      await cycle(other)
    }
    main()`)
  assert.deepEqual(out, ['true', 'released', 'released', 'released'])
})
