// What Edge Impulse's Node.js client makes of a program; run by node with its modules in build/eim.
//
//     node_client.js PROGRAM SAMPLES.json KIND
//
// KIND is "shm" or "json". The arguments and the output are those of python_client.py.

const fs = require('fs');
const { LinuxImpulseRunner } = require('edge-impulse-linux/build/library/classifier/linux-impulse-runner');

async function main() {
    const [program, samples, kind] = process.argv.slice(2);
    const runner = new LinuxImpulseRunner(program, { shmBehavior: kind === 'shm' ? 'always' : 'never' });
    let hello, code = null;
    const results = [];
    try {
        hello = await runner.init();
        const child = runner._runner;
        for (const sample of JSON.parse(fs.readFileSync(samples, 'utf-8'))) {
            try {
                results.push((await runner.classify(sample)).result);
            } catch (error) {
                results.push(error.message);
            }
        }
        await runner.stop();
        code = child.exitCode;
    } catch (error) {
        hello = error.message;
    }
    console.log(JSON.stringify({ hello, results, code }));
    process.exit(0); // the client's timers would keep the process for a minute
}

main();
