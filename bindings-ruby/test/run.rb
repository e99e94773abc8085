# frozen_string_literal: true

# All tests, or those in the files that are named.
files = ARGV.empty? ? Dir[File.join(__dir__, "test_*.rb")] : ARGV.map { |name| File.join(__dir__, "test_#{name}.rb") }
ARGV.replace(Array(ENV["TESTOPTS"]&.split))
files.sort.each { |file| require file }
