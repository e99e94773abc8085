// Writes the ES module entries beside the CommonJS ones in dist/ of this package, or of that in the folder that is named: the
// same objects under the same names, so that a program that loads the package in both ways has one of everything.
const { readFileSync, writeFileSync } = require('node:fs')
const { join } = require('node:path')

const folder = process.argv[2] ?? join(__dirname, '..')
const dist = join(folder, 'dist')
const entries = Object.values(require(join(folder, 'package.json')).exports).filter((entry) => entry.import)
for (const entry of entries) {
  const name = entry.require.default.replace('./dist/', '').replace(/\.js$/, '')
  const cjs = require(join(dist, `${name}.js`))
  const names = Object.keys(cjs).filter((each) => each !== 'default')
  // by their names: what the default of a CommonJS module is, Node.js, Bun, Deno and bundlers answer differently
  const exported = [...names]
  const types = [`export * from './${name}.js'`, '']
  if (cjs.default !== undefined) {
    // the default is one of the others, so that its type can be named from an ES module
    const main = names.find((each) => cjs[each] === cjs.default)
    exported.push(`${main} as default`)
    types.splice(-1, 0, `export { ${main} as default } from './${name}.js'`)
  }
  writeFileSync(join(dist, `${name}.mjs`), `export { ${exported.join(', ')} } from './${name}.js'\n`)
  // the types are those of the CommonJS entry
  writeFileSync(join(dist, `${name}.d.mts`), types.join('\n'))
  if (!readFileSync(join(dist, `${name}.d.ts`), 'utf8')) throw new Error(`${name}.d.ts is empty`)
}
