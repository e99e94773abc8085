// Writes the ES module entries beside the CommonJS ones in dist/: the same objects under the same names, so that a program
// that loads the package in both ways has one of everything.
const { readFileSync, writeFileSync } = require('node:fs')
const { join } = require('node:path')

const dist = join(__dirname, '..', 'dist')
const entries = Object.values(require('../package.json').exports).filter((entry) => entry.import)
for (const entry of entries) {
  const name = entry.require.default.replace('./dist/', '').replace(/\.js$/, '')
  const names = Object.keys(require(join(dist, `${name}.js`)))
  const lines = [`import cjs from './${name}.js'`, '', ...names.map((each) => `export const ${each} = cjs.${each}`), '']
  writeFileSync(join(dist, `${name}.mjs`), lines.join('\n'))
  // the types are those of the CommonJS entry
  writeFileSync(join(dist, `${name}.d.mts`), `export * from './${name}.js'\n`)
  if (!readFileSync(join(dist, `${name}.d.ts`), 'utf8')) throw new Error(`${name}.d.ts is empty`)
}
