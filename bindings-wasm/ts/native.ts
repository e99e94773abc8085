// The WebAssembly module in place of a native one. It is private to this package.

import { nativeOver } from './bridge'
import { code, host } from './host_node'
import { Module } from './module'
import type { Native } from './native_types'
import { VERSION } from './version'

export * from './native_types'

function checked(native: Native): Native {
  const found = native.version()
  if (found !== VERSION) {
    throw new Error(`@onelock/wasm ${VERSION} found a module of version ${found}: install it anew`)
  }
  return native
}

export const native: Native = checked(nativeOver(new Module(code(), host), (name) => process.env[name] ?? ''))

/** There is no socket for libuv to poll: the host reads. */
export const hasLibuv = false
