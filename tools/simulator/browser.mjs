// A headless browser, driven by its own protocol through a pipe: no driver is fetched.
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** How long a machine that is busy may take for one answer. */
const PATIENCE = 120_000

export async function openBrowser(program) {
  const profile = mkdtempSync(join(tmpdir(), 'onelock-browser-'))
  const options = [
    '--headless=new',
    '--remote-debugging-pipe',
    '--no-sandbox',
    '--disable-gpu',
    '--disable-dev-shm-usage',
  ]
  const child = spawn(program, [...options, `--user-data-dir=${profile}`, '--no-first-run', 'about:blank'], {
    stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
  })
  const waiting = new Map()
  const listeners = []
  let [number, rest] = [0, '']
  const gone = new Promise((_, reject) => child.on('exit', (code) => reject(new Error(`the browser ended: ${code}`))))
  gone.catch(() => {})
  child.stdio[4].setEncoding('utf8')
  child.stdio[4].on('data', (data) => {
    const parts = (rest + data).split('\0')
    rest = parts.pop()
    for (const part of parts) {
      const message = JSON.parse(part)
      const { resolve, reject } = waiting.get(message.id) ?? {}
      waiting.delete(message.id)
      if (message.error) reject?.(new Error(message.error.message))
      else if (resolve) resolve(message.result)
      else for (const listen of listeners) listen(message)
    }
  })
  const send = (method, params = {}, sessionId = undefined) => {
    number += 1
    const id = number
    const answer = new Promise((resolve, reject) => waiting.set(id, { resolve, reject }))
    child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`)
    let timer
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no answer to ${method}`)), PATIENCE)
    })
    return Promise.race([answer, late, gone]).finally(() => clearTimeout(timer))
  }
  const { targetInfos } = await send('Target.getTargets')
  const { targetId } = targetInfos.find((target) => target.type === 'page')
  const { sessionId } = await send('Target.attachToTarget', { targetId, flatten: true })
  const tab = (method, params) => send(method, params, sessionId)
  const evaluate = async (expression) => {
    const { result, exceptionDetails } = await tab('Runtime.evaluate', {
      expression,
      awaitPromise: true,
      returnByValue: true,
    })
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text)
    return result.value
  }
  const until = async (expression) => {
    const end = Date.now() + PATIENCE
    while (!(await evaluate(expression))) {
      if (Date.now() > end) throw new Error(`it never came to this: ${expression}`)
      await new Promise((resolve) => setTimeout(resolve, 30))
    }
  }
  const close = async () => {
    const ended = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGKILL')
    await ended
    rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 })
  }
  return { tab, evaluate, until, close, listen: (listener) => listeners.push(listener) }
}
