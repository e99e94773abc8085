// Both ways of loading the package, and two copies of it.
import assert from 'node:assert/strict'
import { cpSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import test from 'node:test'
import { fileURLToPath } from 'node:url'
import * as esm from 'onelock'

const require = createRequire(import.meta.url)
const here = dirname(fileURLToPath(import.meta.url))

test('ES modules and CommonJS share one of everything', () => {
  const cjs = require('onelock')
  const names = Object.keys(cjs)
  assert.deepEqual(
    Object.keys(esm).filter((name) => name !== 'default' && name !== 'module.exports'),
    [...names].sort(),
  )
  for (const name of names) assert.equal(esm[name], cjs[name], name)
  assert.equal(cjs.version, require('../package.json').version)
})

test('instanceof holds between two copies of the package', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'onelock-copy-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  const root = join(here, '..')
  cpSync(join(root, 'dist'), join(folder, 'dist'), { recursive: true })
  cpSync(join(root, 'package.json'), join(folder, 'package.json'))
  const module = require.resolve(`../onelock.${require('../dist/platform.js').platform()}.node`)
  symlinkSync(module, join(folder, module.split('/').at(-1)))
  const copy = require(join(folder, 'dist', 'index.js'))
  assert.notEqual(copy.LockBusyError, esm.LockBusyError)
  const client = new copy.Client('memory://')
  const lease = await client.lock('x').acquire()
  const error = await client
    .lock('x')
    .acquire({ timeout: 0 })
    .catch((thrown) => thrown)
  await lease.release()
  for (const of of [copy, esm]) {
    assert.ok(error instanceof of.LockBusyError)
    assert.ok(error instanceof of.LockNotAcquiredError)
    assert.ok(error instanceof of.OnelockError)
    assert.ok(!(error instanceof of.LockTimeoutError))
    assert.ok(!(error instanceof of.LockLostError))
  }
  assert.ok(error instanceof Error)
  // a class that a program derives is an ordinary one
  class Mine extends esm.LockBusyError {}
  assert.ok(!(error instanceof Mine))
  for (const other of [null, undefined, 7, 'x', {}, new Error('x')]) assert.ok(!(other instanceof esm.OnelockError))
})
