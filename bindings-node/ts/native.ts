// Loads the native module. It is private to this package.

import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import type { Native } from './native_types'
import { platform } from './platform'
import { VERSION } from './version'

export * from './native_types'

/** The path of this file, or of the bundle that contains it. */
const HERE = typeof __filename === 'string' ? __filename : (process.argv[1] ?? join(process.cwd(), 'index.js'))

/** Bundlers follow `require` and cannot include native modules; they do not follow this. */
const find = createRequire(HERE)

/** Loads a file that was built here, or the package of this platform; the error says what to install. */
function load(): Native {
  const chosen = process.env.ONELOCK_NATIVE
  if (chosen) return find(chosen)
  const name = platform()
  const built = join(HERE, '..', '..', `onelock.${name}.node`)
  if (existsSync(built)) return find(built)
  try {
    return find(`@onelock/${name}`)
  } catch (cause) {
    const missing = (cause as { code?: string }).code === 'MODULE_NOT_FOUND'
    const why = missing
      ? missingText(name)
      : `the package @onelock/${name} cannot be loaded: ${(cause as Error).message}`
    throw new Error(`onelock has no native module for ${name}: ${why}`, { cause })
  }
}

function missingText(name: string): string {
  if (/[\\/]dist[\\/]native\.js$/.test(HERE)) {
    return (
      `the package @onelock/${name} is not installed. It is an optional dependency of onelock: install again without ` +
      '--omit=optional, on the machine (or for the platform) that it is to run on'
    )
  }
  return (
    `a bundle, ${HERE}, does not find the package @onelock/${name}. A native module cannot be part of a bundle: name onelock ` +
    'as external and install it beside the bundle, or set ONELOCK_NATIVE to the path of the .node file'
  )
}

function checked(native: Native): Native {
  const found = native.version()
  if (found !== VERSION) {
    throw new Error(`onelock ${VERSION} found a native module of version ${found}: install both anew, with one version`)
  }
  return native
}

export const native: Native = checked(load())

/** Whether the program runs on libuv. In Bun its functions end the process, and Deno lacks some of them. */
export const hasLibuv = process.versions.bun === undefined && process.versions.deno === undefined
