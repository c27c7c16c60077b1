# Trains the novice on a lent GPU that can reach nothing, from demonstrations made elsewhere. Arguments: CARELESS...
mkdir -p /tmp/site && for w in carry/wheels/*.whl; do python -m zipfile -e $w /tmp/site; done
export PYTHONPATH=$PWD:/tmp/site MONTY_BIN=$(find /tmp/site -name monty -type f | head -1) OMP_NUM_THREADS=4
chmod +x $MONTY_BIN
tar xf carry/novice.tar.xz
for c in "$@"; do
  resume=$([ -d runs/novice-$c/checkpoints ] && echo "--resume runs/novice-$c" || echo "recipes/novice/novice.toml name=novice-$c env.careless=$c demos=runs/demos-$c")
  timeout ${LIMIT:-540} python -m longloop.cli.main train $resume > $OUT/$c.txt 2>&1 &
done
wait
for c in "$@"; do
  r=runs/novice-$c; mkdir -p /tmp/back/novice-$c; cp -r $(ls -d $r/checkpoints/* | tail -1)/model $r/metrics.jsonl $r/config.toml $r/run.json $r/logs/train.log /tmp/back/novice-$c/
  grep eval $OUT/$c.txt; tail -3 $OUT/$c.txt
done
tar cf $OUT/back.tar -C /tmp/back .
