// Small programs as child processes: what a process does at its end can only be seen from outside.
const { spawn } = require('node:child_process')
const { join } = require('node:path')

const root = join(__dirname, '..', '..')

/** Starts a program that knows `url` and, unless it is not `loaded`, `Client`; it is given up after `limit` ms. */
function start(url, source, { flags = [], limit = 60_000, loaded = true, env = {}, command = [] } = {}) {
  const text = `
    ${loaded ? `const { Client } = require(${JSON.stringify(root)})` : ''}
    const url = ${JSON.stringify(url)}
    const say = (word) => require('node:fs').writeSync(1, word + '\\n')
    const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
    const block = (ms) => { const end = performance.now() + ms; while (performance.now() < end); }
    ${source}`
  const [program, ...words] = [...command, process.execPath, ...flags, '-e', text]
  const child = spawn(program, words, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, NODE_OPTIONS: '', ...env },
  })
  const run = { child, out: '', err: '', began: Date.now() }
  child.stdout.setEncoding('utf8').on('data', (more) => (run.out += more))
  child.stderr.setEncoding('utf8').on('data', (more) => (run.err += more))
  const timer = setTimeout(() => child.kill('SIGKILL'), limit)
  run.ended = new Promise((resolve) => {
    child.on('close', (code, signal) => {
      clearTimeout(timer)
      resolve({ code, signal, out: run.out, err: run.err, took: Date.now() - run.began })
    })
  })
  return run
}

/** Runs a program to its end. */
const run = (...args) => start(...args).ended

module.exports = { run, start }
